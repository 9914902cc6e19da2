"""Summarises the sets that a builder has made, with warnings about problems to fix before training."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from xlnet_tf.cli import command_line
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.input_counts import PIECES, TEXTS, UNKNOWN_PIECES, UNKNOWN_TEXTS, fingerprints
from xlnet_tf.text.special_tokens import PAD_ID

MAX_UNKNOWN_SHARE = 0.01
MAX_CUT_SHARE = 0.5
SHOWN = 3  # examples in a message or a table
_WIDTH = 60  # characters of a text shown


def warnings(examples: ExampleSet) -> list[str]:
    """Returns the problems of a set that should be fixed before a model is trained on it."""
    return [*_of_cut_inputs(examples), *_of_unknown_pieces(examples)]


def _of_cut_inputs(examples: ExampleSet) -> Iterator[str]:
    for name, count in examples.statistics.items():
        total = examples.statistics.get("candidates", 0) if name.startswith("passages") else examples.records
        if name.endswith(" cut") and not name.startswith("pieces") and count > MAX_CUT_SHARE * total:
            yield (
                f"{name}: {count:,} of {total:,} in {examples.split}, and no model reads what is cut. Raise "
                f"--seq_len, {examples.seq_len} now, or the limit of that part, if there is one"
            )


def _of_unknown_pieces(examples: ExampleSet) -> Iterator[str]:
    pieces, unknown = (examples.statistics.get(name, 0) for name in (PIECES, UNKNOWN_PIECES))
    if not pieces or unknown < MAX_UNKNOWN_SHARE * pieces:
        return
    alone, texts = (examples.statistics.get(name, 0) for name in (UNKNOWN_TEXTS, TEXTS))
    only = f", and {alone:,} of {texts:,} texts have no other" if alone else ""
    yield (
        f"{unknown / pieces:.1%} of the pieces of {examples.split} are <unk>{only}: the tokenizer cannot "
        "write this text, and the model cannot distinguish such words. Take a tokenizer and weights "
        "of the text's language, script and case (--lower), or train them "
        f"({command_line.spelled('python -m run_scripts.train_tokenizer')})"
    )


def summary(sets: Mapping[str, ExampleSet]) -> str:
    """Returns a readable summary of the sets that a builder has made, by split."""
    lines = []
    for examples in sets.values():
        lines += [examples.table(), *(f"WARNING: {warning}" for warning in warnings(examples))]
    return "\n".join([*lines, *(f"WARNING: {warning}" for warning in shared_with_train(sets))])


def shared_with_train(sets: Mapping[str, ExampleSet]) -> list[str]:
    """Returns one line for each other split that shares inputs with "train"."""
    return [
        f"{found.count:,} of {found.total:,} inputs of {split} are in train, too: its scores will be too "
        f"good. Remove them from one of both ({sets['train'].folder}, {sets[split].folder})"
        for split, found in find_shared(sets).items()
        if found.count
    ]


def check_shared(sets: Mapping[str, ExampleSet], most: float) -> None:
    """Raises UserError if more than a share `most` (0 to 1) of a split's examples are also in "train".

    An example counts if all its inputs together are those of one training example; a text, an option or a
    candidate that appears again with others does not. A split may be the training set itself, to check that a
    model learns it.
    """
    trained_on = {*_examples(sets["train"]).values()}
    for examples in sets.values():
        inputs = _examples(examples)
        if {*inputs.values()} == trained_on:  # the training examples themselves, on purpose
            continue
        shared = [number for number, value in inputs.items() if value in trained_on]
        if len(shared) > most * len(inputs):
            texts = ", ".join(f"{name} ({text!r})" for name, text in describe(examples, shared[:SHOWN]))
            raise UserError(
                f"{len(shared):,} of {len(inputs):,} examples of {examples.folder} are in "
                f"{sets['train'].folder}, too, such as {texts}: scores on them say nothing about new texts. "
                "Remove them from one of both and build the sets again, or allow a part of them, up to all "
                "with --max_leaked_dev=1"
            )


def _examples(examples: ExampleSet) -> dict[int, frozenset[int]]:
    found: dict[int, set[int]] = {}
    for number, value in numbered_inputs(examples):
        found.setdefault(number, set()).add(value)
    return {number: frozenset(values) for number, values in found.items()}


class Found(NamedTuple):
    """How many of a set's `total` inputs have something in common; `first`: numbers of the first examples."""

    count: int
    total: int
    first: list[int]


def find_shared(sets: Mapping[str, ExampleSet]) -> dict[str, Found]:
    """Returns, for each other split, which of its inputs are in "train", too."""
    if "train" not in sets:
        return {}
    trained_on = {value for _, value in numbered_inputs(sets["train"])}
    found = {}
    for split, examples in sets.items():
        if split != "train":
            inputs = [*numbered_inputs(examples)]
            shared = [number for number, value in inputs if value in trained_on]
            found[split] = Found(len(shared), len(inputs), [*dict.fromkeys(shared)][:SHOWN])
    return found


def numbered_inputs(examples: ExampleSet) -> Iterator[tuple[int, int]]:
    """Yields (number of the example, fingerprint) of each input: each sequence that is not padding alone."""
    first = 0
    for columns in examples.read_shards():
        ids = columns["input_ids"]
        is_input = (ids.reshape(-1, examples.seq_len) != PAD_ID).any(axis=1)
        numbers = first + np.flatnonzero(is_input) // examples.sequences
        yield from zip(numbers.tolist(), fingerprints(ids, examples.seq_len), strict=True)
        first += len(ids)


def describe(examples: ExampleSet, numbers: Collection[int]) -> list[tuple[str, str]]:
    """Returns the id and the beginning of a text of each of these examples, in the set's order."""
    found = []
    for number, row in enumerate(examples.sidecar()):
        if number in numbers:
            part = row["parts"][0] if row.get("parts") else row
            text = next((part[name] for name in ("text", "question", "query") if part.get(name)), "")
            name = next((part[key] for key in ("id", "query_id") if key in part), number)
            found.append((str(name), text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."))
        if len(found) == len(numbers):
            break
    return found
