r"""Scores the likelihood of texts: by a pretrained model, piece by piece, in any factorization order.

    python -m run_scripts.score --model_dir=runs/demo/model --text="A fine film ." --text="Fine a film ."

The sum over a text's pieces is its log-probability, whatever the order: --order=right_to_left, or random.
What --context holds is given: it stands before each text, and is not scored.
A text and its context have at most 32,768 pieces.
"""

import gc
import math
from collections.abc import Sequence

from absl import flags

from xlnet_tf import errors

_ORDERS = ("left_to_right", "right_to_left", "random")

FLAGS = flags.FLAGS


def describe(text: str, score) -> str:
    """Returns a text, its log-probability, and below them its pieces in the order of their prediction."""
    lines = [f"  {text}", f"    {score.total:.2f} nats, {len(score.pieces)} pieces"]
    if score.pieces:
        perplexity = math.exp(-score.total / len(score.pieces))
        lines[-1] += f", perplexity {perplexity:.1f}"
    for rank, number in enumerate(score.order, 1):
        log_probability, piece = score.log_probabilities[number], score.pieces[number]
        lines.append(f"    {rank:>3}. piece {number + 1:<4} {log_probability:8.2f}  {piece}")
    return "\n".join(lines)


def main(_: Sequence[str]) -> None:
    gc.set_threshold(50_000)  # else Python looks through TensorFlow's modules, again and again as they load
    from xlnet_tf.generation.language_model import XLNetLanguageModel

    model = XLNetLanguageModel.from_pretrained(FLAGS.model_dir)
    contexts = [FLAGS.context] * len(FLAGS.text)
    scores = model.score(FLAGS.text, contexts, order=FLAGS.order, seed=FLAGS.seed)
    for text, score in zip(FLAGS.text, scores, strict=True):
        print(describe(text, score))


if __name__ == "__main__":
    flags.DEFINE_string(
        "model_dir",
        None,
        "Folder of a pretrained model: a run's, the original's or Hugging Face's.",
        required=True,
    )
    flags.DEFINE_multi_string("text", None, "Text to score.", required=True)
    flags.DEFINE_string("context", "", "What stands before each text.")
    flags.DEFINE_enum("order", _ORDERS[0], _ORDERS, "Order in which the pieces are predicted.")
    flags.DEFINE_integer("seed", 0, "Random seed for --order=random.", lower_bound=0)
    errors.run(main)
