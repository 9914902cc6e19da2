"""What to know of the sets that a builder has made, and what to mend before a model is trained on them."""

from collections.abc import Iterator, Mapping

from xlnet_tf import command_line
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.input_counts import PIECES, TEXTS, UNKNOWN_PIECES, UNKNOWN_TEXTS, fingerprints

MAX_UNKNOWN_SHARE = 0.01


def warnings(examples: ExampleSet) -> list[str]:
    """Returns what should be mended in a set before a model is trained on it.

    Args:
        examples: a set; those of earlier versions have no counts, and so no warnings.
    """
    pieces, unknown = (examples.statistics.get(name, 0) for name in (PIECES, UNKNOWN_PIECES))
    if not pieces or unknown < MAX_UNKNOWN_SHARE * pieces:
        return []
    alone, texts = (examples.statistics.get(name, 0) for name in (UNKNOWN_TEXTS, TEXTS))
    only = f", and {alone:,} of {texts:,} texts have no other" if alone else ""
    return [
        f"{unknown / pieces:.1%} of the pieces of {examples.split} are <unk>{only}: the tokenizer cannot "
        "write this text, and the model cannot distinguish such words. Take a tokenizer and weights "
        "of the text's language, script and case (--lower), or train them "
        f"({command_line.spelled('python -m run_scripts.train_tokenizer')})"
    ]


def summary(sets: Mapping[str, ExampleSet]) -> str:
    """Returns what a person wants to know of the sets that a builder has made: split -> set."""
    lines = []
    for examples in sets.values():
        lines += [examples.table(), *(f"WARNING: {warning}" for warning in warnings(examples))]
    return "\n".join([*lines, *(f"WARNING: {warning}" for warning in shared_with_train(sets))])


def shared_with_train(sets: Mapping[str, ExampleSet]) -> list[str]:
    """Returns what dev and test sets have in common with the training set, a line for each that has anything.

    Args:
        sets: split -> set; without "train" there is nothing to compare.
    """
    if "train" not in sets:
        return []
    trained_on = set(_fingerprints(sets["train"]))
    lines = []
    for split, examples in sets.items():
        if split == "train":
            continue
        values = [*_fingerprints(examples)]
        if shared := sum(value in trained_on for value in values):
            lines.append(
                f"{shared:,} of {len(values):,} inputs of {split} are in train, too: its scores will be too "
                f"good. Remove them from one of both ({sets['train'].folder}, {examples.folder})"
            )
    return lines


def _fingerprints(examples: ExampleSet) -> Iterator[int]:
    for columns in examples.read_shards():
        yield from fingerprints(columns["input_ids"], examples.seq_len)
