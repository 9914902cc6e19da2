r"""Continues texts with a pretrained model: by sampling or by beam search.

    python -m run_scripts.generate --model_dir=runs/demo/model --prompt="My fellow citizens" --top_p=0.9
    python -m run_scripts.generate --model_dir=runs/demo/model --prompt="My fellow citizens" --beams=4

Prints the prompt as the model reads it, and its continuation; with --beams all candidates, with their
log-probabilities.
A prompt and what follows it have at most 32,768 pieces.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from run_scripts.common import computing
from run_scripts.common.sharded.models import DTYPE_HELP
from xlnet_tf import errors, hub
from xlnet_tf.flags import define_flags, from_flags, given, option

_SAMPLING = ("temperature", "top_k", "top_p", "seed")
_LIMITS = ("max_new_tokens", "stop", "forbid", "repetition_penalty")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """Which texts are continued, and how."""

    model_dir: str = option(hub.PRETRAINED_FLAG_HELP, group="model")
    prompt: Sequence[str] = option("Text to continue.", repeated=True, group="data")
    max_new_tokens: int = option("Pieces to write.", 50, least=1, group="answers")
    temperature: float = option("Divides logits; 0 takes the likeliest piece.", 1.0, least=0, group="answers")
    top_k: int = option("Number of the likeliest pieces to draw from; 0: all.", 0, least=0)
    top_p: float = option(
        "Draws from the likeliest pieces that have this probability; 1: all.", 0.95, group="answers"
    )
    beams: int = option("Candidates of beam search; 0: draws instead.", 0, least=0, most=256, group="answers")
    seed: int = option("Random seed of the draws.", 0, least=0)
    stop: Sequence[str] = option(
        "Piece that ends a text, such as '.' or '<eop>'.", (), repeated=True, group="answers"
    )
    forbid: Sequence[str] = option(
        "Piece that is never written, such as '<eop>'.", (), repeated=True, group="answers"
    )
    repetition_penalty: float = option(
        "Multiplies the log-probability of each piece that the text has already; 1: none.",
        1.0,
        least=1,
        most=10,
        group="answers",
    )
    dtype: str = option(DTYPE_HELP, "float32", choices=("float32", "bfloat16"))


def write(options: GenerateOptions) -> Iterator[str]:
    """Yields a line for each continued text."""
    model = computing.load_language_model(options.model_dir, options.dtype)
    limits = {name: getattr(options, name) for name in _LIMITS}
    if options.beams:
        for continuation in itertools.chain(*model.search(options.prompt, beams=options.beams, **limits)):
            yield f"{continuation.total:8.2f} nats  {continuation.whole}"
    else:
        sampling = {name: getattr(options, name) for name in _SAMPLING}
        for continuation in model.generate(options.prompt, **sampling, **limits):
            yield continuation.whole


def main(_: Sequence[str]):
    options = from_flags(GenerateOptions)
    if options.beams and (useless := given(_SAMPLING)):
        names = ", ".join(f"--{name}" for name in useless)
        raise errors.UserError(f"with --beams these flags have no effect: {names}. Leave them out")
    hub.require(options.model_dir)
    for line in write(options):
        print(line)


if __name__ == "__main__":
    define_flags(GenerateOptions)
    errors.run(main)
