r"""Continues texts with a pretrained model: by sampling or by beam search.

    python -m run_scripts.generate --model_dir=runs/demo/model --prompt="My fellow citizens" --top_p=0.9
    python -m run_scripts.generate --model_dir=runs/demo/model --prompt="My fellow citizens" --beams=4

Prints the prompt as the model reads it, and its continuation; with --beams all candidates, with their
log-probabilities.
A prompt and what follows it have at most 32,768 pieces.
"""

import itertools
from collections.abc import Iterator, Sequence

from absl import flags

from xlnet_tf import errors, hub

_SAMPLING = ("temperature", "top_k", "top_p", "seed")


def write(values: flags.FlagValues) -> Iterator[str]:
    """Writes what the flags ask for: yields a line for each text."""
    from xlnet_tf.generation.language_model import XLNetLanguageModel
    from xlnet_tf.serving.graph.weights import policy

    with policy(values.dtype):
        model = XLNetLanguageModel.from_pretrained(values.model_dir)
    options = {"max_new_tokens": values.max_new_tokens, "stop": values.stop}
    if values.beams:
        found = model.search(values.prompt, beams=values.beams, **options)
        for continuation in itertools.chain(*found):
            yield f"{continuation.total:8.2f} nats  {continuation.whole}"
    else:
        sampling = {name: getattr(values, name) for name in _SAMPLING}
        for continuation in model.generate(values.prompt, **sampling, **options):
            yield continuation.whole


def main(_: Sequence[str]):
    given = [f"--{name}" for name in _SAMPLING if flags.FLAGS.beams and flags.FLAGS[name].present]
    if given:
        raise errors.UserError(f"with --beams these flags have no effect: {', '.join(given)}. Leave them out")
    hub.require(flags.FLAGS.model_dir)
    for line in write(flags.FLAGS):
        print(line)


if __name__ == "__main__":
    flags.DEFINE_string("model_dir", None, hub.PRETRAINED_FLAG_HELP, required=True)
    flags.DEFINE_multi_string("prompt", None, "Text to continue.", required=True)
    flags.DEFINE_integer("max_new_tokens", 50, "Pieces to write.", lower_bound=1)
    flags.DEFINE_float("temperature", 1.0, "Divides logits; 0 takes the likeliest piece.", lower_bound=0)
    flags.DEFINE_integer("top_k", 0, "Number of the likeliest pieces to draw from; 0: all.", lower_bound=0)
    flags.DEFINE_float("top_p", 0.95, "Draws from the likeliest pieces that have this probability; 1: all.")
    flags.DEFINE_integer("beams", 0, "Candidates of beam search; 0: draws instead.", 0, 256)
    flags.DEFINE_integer("seed", 0, "Random seed of the draws.", lower_bound=0)
    flags.DEFINE_multi_string("stop", [], "Piece that ends a text, such as '.' or '<eop>'.")
    flags.DEFINE_enum(
        "dtype",
        "float32",
        ["float32", "bfloat16"],
        "Type of weights and activations; bfloat16 is less exact, faster on devices that compute with it.",
    )
    errors.run(main)
