r"""Fills in masked pieces of texts with a pretrained model.

    python -m run_scripts.fill_mask --model_dir=runs/demo/model --text="The Congress of the <mask> <mask> ."

One <mask> stands for one piece of the vocabulary. Several are filled together, from left to right, each
knowing those before it: p(New) p(York | New). Next to it is what a model would say that predicts all masks
apart: p(New) p(York). A text has at most 256 masks and 32,768 pieces.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from run_scripts.common import computing
from xlnet_tf import errors, hub
from xlnet_tf.flags import define_flags, from_flags, option

MOST_EAGER = 16  # masks of a text that are filled before a graph, which is faster then, has been traced
_LEAST_SHOWN = 0.0005  # probability of a filling that is shown in percent

if TYPE_CHECKING:
    from xlnet_tf.generation.results import FilledText, Guess


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillOptions:
    """Which texts are filled in, and how many fillings are shown."""

    model_dir: str = option(hub.PRETRAINED_FLAG_HELP, group="model")
    text: Sequence[str] = option("Text with at least one <mask>.", repeated=True, group="data")
    top_k: int = option(
        "Fillings of a text, and pieces for a mask, to show.", 5, least=1, most=256, group="answers"
    )


def fill(options: FillOptions) -> Iterator[str]:
    model = computing.load_language_model(options.model_dir)
    for text, filled in zip(options.text, model.fill_mask(options.text, top_k=options.top_k), strict=True):
        yield describe(text, filled)


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
    options = from_flags(FillOptions)
    hub.require(options.model_dir)
    masks = max(text.count("<mask>") for text in options.text)
    computing.run_eagerly(options.model_dir, masks <= MOST_EAGER)
    for text in fill(options):
        print(text)


if __name__ == "__main__":
    define_flags(FillOptions)
    errors.run(main)
