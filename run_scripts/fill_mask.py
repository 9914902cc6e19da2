r"""Fills in masked pieces of texts with a pretrained model.

    python -m run_scripts.fill_mask --model_dir=runs/demo/model --text="The Congress of the <mask> <mask> ."

One <mask> stands for one piece of the vocabulary. Several are filled together, from left to right, each
knowing those before it: p(New) p(York | New). Next to it is what a model would say that predicts all masks
apart: p(New) p(York). A text has at most 256 masks and 32,768 pieces.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from absl import flags

from xlnet_tf import errors, hub

MOST_EAGER = 16  # masks of a text that are filled before a graph, which is faster then, has been traced
_LEAST_SHOWN = 0.0005  # probability of a filling that is shown in percent

if TYPE_CHECKING:
    from xlnet_tf.generation.results import FilledText, Guess


def fill(values: flags.FlagValues) -> Iterator[str]:
    """Fills in what the flags ask for: yields a description for each text."""
    from xlnet_tf.generation.language_model import XLNetLanguageModel

    model = XLNetLanguageModel.from_pretrained(values.model_dir)
    for text, found in zip(values.text, model.fill_mask(values.text, top_k=values.top_k), strict=True):
        yield describe(text, found)


def describe(text: str, found: "FilledText") -> str:
    """Returns a text and, below it, its likeliest fillings and what each mask may be, for people."""
    lines = [f"  {text}"]
    for filling in found.fillings:
        is_small = filling.probability < _LEAST_SHOWN
        joint = f"{filling.log_probability:.1f} nats" if is_small else f"{filling.probability:6.1%}"
        lines.append(f"    {joint}  {filling.text}")
        if len(filling.pieces) > 1:
            for name, probabilities in (("together", filling.probabilities), ("apart", filling.alone)):
                product = " x ".join(map(_spell, filling.pieces, probabilities))
                lines.append(f"            {name:8} {product}")
    for number, (guesses, alone) in enumerate(zip(found.guesses, found.guesses_alone, strict=True), 1):
        if number == 1:
            lines.append(f"    mask 1: {_list(guesses)}")
        else:
            lines.append(f"    mask {number}, given those before it: {_list(guesses)}")
            lines.append(f"    mask {number}, apart: {_list(alone)}")
    return "\n".join(lines)


def _list(guesses: Iterable["Guess"]) -> str:
    return ", ".join(_spell(*guess) for guess in guesses)


def _spell(piece: str, probability: float) -> str:
    return f"{piece.strip('▁') or '▁'} {probability:.1%}"


def main(_: Sequence[str]):
    hub.require(flags.FLAGS.model_dir)
    import tensorflow as tf

    masks = max(text.count("<mask>") for text in flags.FLAGS.text)
    tf.config.run_functions_eagerly(masks <= MOST_EAGER)
    for text in fill(flags.FLAGS):
        print(text)


if __name__ == "__main__":
    flags.DEFINE_string("model_dir", None, hub.PRETRAINED_FLAG_HELP, required=True)
    flags.DEFINE_multi_string("text", None, "Text with at least one <mask>.", required=True)
    flags.DEFINE_integer("top_k", 5, "Fillings of a text, and pieces for a mask, to show.", 1, 256)
    errors.run(main)
