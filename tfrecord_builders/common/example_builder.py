"""The frame of all builders of labelled examples.

    read and check a split -> encode many rows at once -> columns and a line of the side file -> a set

A builder adds its options, how a split is read, and how a row becomes an example. Here are the options that
all have, which sets may be replaced, writing them, and the command.
"""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from etils import epath

from tfrecord_builders.pretraining.dedup import fingerprints, is_held_out
from xlnet_tf import errors, files, folders
from xlnet_tf.cli import command_line
from xlnet_tf.differences import settings_difference
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records import example_report
from xlnet_tf.records.examples import ExampleSet, ExampleWriter, discard
from xlnet_tf.records.layout import Column
from xlnet_tf.schema import check_fields
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.locating import cleaning_for, find_file
from xlnet_tf.text.tokenizer import XLNetTokenizer

SPLITS = ("train", "dev", "test")
BUILDS_ANEW = "the same command builds the examples anew"

_OF_A_SPLIT = ("labelled", "answered", "tagged", "judged", "unanswerable")  # settings that its data decide

_BATCH_ROWS = 512  # encoded at once

Columns = TypeVar("Columns")
Read = TypeVar("Read")  # what a builder reads as a row
Example = tuple[Mapping[str, Any], Mapping[str, Any]]  # its columns, and its line of the side file
Options = TypeVar("Options", bound="ExampleOptions")


@dataclasses.dataclass(frozen=True)
class ExampleOptions:
    """Options of every builder; each field is a flag.

    A builder's options derive from these and have a field for the data of each of SPLITS.
    """

    tokenizer: str = option(
        "SentencePiece model of the checkpoint to fine-tune: a file, its folder or hf://OWNER/NAME",
        group="model",
    )
    output_dir: str = option("folder for the examples, one folder in it for each split", group="output")
    _: dataclasses.KW_ONLY
    seq_len: int = option("tokens of a sequence", 128, least=5, group="examples")
    lower: bool | None = option("lower-case the text. Default: as a model next to the tokenizer, or no", None)
    keep_accents: bool | None = option(
        "keep accents (the released models drop them). Default: as a model next to the tokenizer, or no", None
    )
    dev_fraction: float | None = option(
        "part of --train to hold out as dev split, by its texts alone. Default: 0", None, group="examples"
    )
    overwrite: bool = option(
        "replace the sets in output_dir, those of splits that are not built now, too", False
    )

    @functools.cached_property
    def cleaning(self) -> CleaningConfig:
        return cleaning_for(self.tokenizer, lower=self.lower, keep_accents=self.keep_accents)

    @property
    def splits(self) -> list[str]:
        return [split for split in SPLITS if getattr(self, split)]

    @property
    def built(self) -> list[str]:
        """The splits that result: a dev split may be held out of train."""
        return [split for split in SPLITS if getattr(self, split) or (split == "dev" and self.dev_fraction)]

    def check_held_out(self) -> None:
        """Raises UserError unless the dev fraction is possible."""
        if not 0 <= (self.dev_fraction or 0) < 1:
            raise UserError(f"dev_fraction is {self.dev_fraction}, expected 0 to less than 1")
        if self.dev_fraction and (self.dev or not self.train):
            raise UserError("dev_fraction is for a train split without a dev split: leave one of them out")

    def check(self) -> None:
        """Raises UserError for options that are out of range or conflict."""
        check_fields(self)
        self.check_held_out()
        if not self.splits:
            raise UserError("no data: give --train, --dev or --test")
        for split in self.splits:
            paths = getattr(self, split)
            if not isinstance(paths, str) and "" in paths:  # which would be the working directory
                raise UserError(f"--{split} is {','.join(paths)!r}, with an empty path: remove a comma")
        self.claim(self.splits)

    def claim(self, splits: Iterable[str]) -> None:
        """Raises UserError if the folder of a split holds anything but examples."""
        for split in splits:
            folders.claim(epath.Path(self.output_dir) / split, folders.EXAMPLES, flag="--output_dir")

    def check_room(self, name: str, num_special: int, rest: str, within: str = "seq_len") -> None:
        """Raises UserError unless a length has room for an option's tokens, special ones and others."""
        value, length = getattr(self, name), getattr(self, within)
        if not 1 <= value <= (most := length - num_special - 1):
            raise UserError(
                f"{name} is {value}, expected 1 to {most}, so that {within} {length} has room for {rest}"
            )

    def columns_of(self, cls: type[Columns]) -> Columns:
        """Returns a dataclass of a table's columns, where option NAME_column gives field NAME."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: getattr(self, f"{name}_column") for name in names})

    def load_tokenizer(self) -> XLNetTokenizer:
        return XLNetTokenizer(find_file(self.tokenizer), cleaning=self.cleaning)


@dataclasses.dataclass(frozen=True)
class Split(Generic[Read]):
    """A split that has been read and checked; rows may be read lazily while examples are written."""

    rows: Iterable[Read]
    total: int
    columns: Sequence[Column]
    settings: Mapping[str, Any]
    # Makes a writer's examples of rows.
    examples: Callable[[Collection[Read], ExampleWriter], Iterator[Example]]
    sequences: int = 1
    skipped: Sequence[tuple[str, str]] = ()  # reason and location of rows left out


def build_sets(
    task: str,
    options: ExampleOptions,
    tokenizer: XLNetTokenizer,
    names: Sequence[str],
    read: Callable[[str], Split],
    unit: str,
    progress: bool,
) -> dict[str, ExampleSet]:
    """Builds the sets of some splits in `output_dir`/split; their earlier sets are removed first.

    Raises UserError if output_dir has sets with other settings, or more splits than a new train, and they may
    not be replaced; or errors of `read` and the split's `examples`.
    """
    options.claim(names)
    folder = epath.Path(options.output_dir)
    sets: dict[str, ExampleSet] = {}
    for name in names:
        split = read(name)
        writer = ExampleWriter(
            folder / name,
            task=task,
            split=name,
            tokenizer=tokenizer,
            seq_len=options.seq_len,
            columns=split.columns,
            settings=split.settings,
            sequences=split.sequences,
        )
        if not sets:
            _make_room(folder, names, writer.example_set, options.overwrite)
        with (
            writer,
            ProgressBar(split.rows, name, split.total, unit=f" {unit}", disable=not progress) as bar,
            contextlib.closing(split.examples(bar, writer)) as examples,
        ):
            for left_out in split.skipped:
                writer.skip(*left_out)
            for columns, line in examples:
                writer.write(columns, line)
        sets[name] = writer.example_set
    return sets


def hold_out(
    rows: Sequence[Read], text_of: Callable[[Read], str], fraction: float, source: str
) -> tuple[list[Read], list[Read]]:
    """Splits rows in two, of which the second is held out: equal texts are on the same side."""
    texts = [" ".join(text_of(row).split()).encode() for row in rows]
    held = is_held_out(np.array(fingerprints(texts), np.uint64), fraction)
    check_held_out(held, fraction, source)
    return [row for row, out in zip(rows, held) if not out], [row for row, out in zip(rows, held) if out]


def check_held_out(held: np.ndarray, fraction: float, source: str) -> None:
    """Raises UserError if all rows or none are held out, bool [rows]."""
    if not 0 < held.sum() < len(held):
        raise UserError(
            f"dev_fraction {fraction} holds out {held.sum()} of the {len(held)} rows of {source}: give "
            "--dev, more rows or another fraction"
        )


def encoded(
    rows: Iterable[Read], texts_of: Callable[[Read], Sequence[str]], tokenizer: XLNetTokenizer
) -> Iterator[tuple[Read, list[np.ndarray]]]:
    """Yields rows with the piece ids of each of their texts; encodes many rows at once."""
    rows = iter(rows)
    while batch := list(itertools.islice(rows, _BATCH_ROWS)):
        texts = [texts_of(row) for row in batch]
        ids, lengths = tokenizer.encode_batch([*itertools.chain.from_iterable(texts)])
        parts = iter(np.split(ids, np.cumsum(lengths)[:-1]))
        for row, own in zip(batch, texts):
            yield row, [*itertools.islice(parts, len(own))]


def _make_room(folder: epath.Path, names: Sequence[str], first: ExampleSet, overwrite: bool) -> None:
    """Removes the earlier sets of the splits, or all with `overwrite`; refuses sets that would not fit."""
    there, new = _sets_in(folder), _settings(first)
    different = [
        f"  {name}: {line}"
        for name, examples in there.items()
        for line in settings_difference(_settings(examples), new)
    ]
    if different and not overwrite:
        listed = "\n".join(different)
        raise UserError(
            f"{folder} holds examples with other settings: choose another --output_dir, or give "
            f"--overwrite to replace them. Differences:\n{listed}"
        )
    # Data to evaluate on may change by themselves.
    others = ", ".join(sorted(there.keys() - {*names}))
    if others and not overwrite and "train" in there and "train" in names:
        raise UserError(
            f"{folder} would get a new train next to the old {others}: build {others}, too, or give "
            f"--overwrite to remove {others}"
        )
    for name in there if overwrite else there.keys() & {*names}:
        discard(folder / name)


def _sets_in(folder: epath.Path) -> dict[str, ExampleSet]:
    """Returns the finished, undamaged sets of a folder's splits by their folders."""
    found = {}
    for path in files.entries(folder):
        if path.is_dir() and folders.look(path)[0] == folders.EXAMPLES:
            with contextlib.suppress(UserError, FileNotFoundError):
                found[path.name] = ExampleSet.load(path)
    return found


def _settings(examples: ExampleSet) -> dict[str, Any]:
    fields = {
        name: getattr(examples, name) for name in ("task", "seq_len", "sequences", "tokenizer", "cleaning")
    }
    settings = {name: value for name, value in examples.settings.items() if name not in _OF_A_SPLIT}
    return {**fields, "settings": settings}


def run(options: type[Options], build: Callable[[Options, bool], Mapping[str, ExampleSet]]) -> None:
    """Runs a builder's command with `build(options, whether to draw progress bars)`, and prints a summary."""
    define_flags(options)
    command_line.require_one_of(*SPLITS)
    errors.run(
        lambda _: print(example_report.summary(build(from_flags(options), True))), after_ctrl_c=BUILDS_ANEW
    )
