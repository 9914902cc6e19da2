"""What all builders of labelled examples share: their options and their command."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from etils import epath

from xlnet_tf import errors, files, folders
from xlnet_tf.cli import command_line
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.records import example_report
from xlnet_tf.records.examples import ExampleSet, ExampleWriter, discard
from xlnet_tf.records.manifest import settings_difference
from xlnet_tf.schema import check_fields
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer, cleaning_for, find_file

SPLITS = ("train", "dev", "test")
BUILDS_ANEW = "the same command builds the examples anew"

_OF_A_SPLIT = ("labelled", "answered", "tagged", "judged", "unanswerable")  # settings that its data decide

Columns = TypeVar("Columns")
Options = TypeVar("Options", bound="ExampleOptions")


@dataclasses.dataclass(frozen=True)
class ExampleOptions:
    """Where the tokenizer and the examples are, and how text is cleaned; each field is a flag.

    A builder's options derive from these and have a field for each of SPLITS: where its data is.
    """

    tokenizer: str = option(
        "SentencePiece model of the checkpoint to fine-tune: a file, its folder or hf://OWNER/NAME"
    )
    output_dir: str = option("folder for the examples, one folder in it for each split")
    _: dataclasses.KW_ONLY
    seq_len: int = option("tokens of a sequence", 128, least=5)
    lower: bool | None = option("lower-case the text. Default: as a model next to the tokenizer, or no", None)
    keep_accents: bool | None = option(
        "keep accents (the released models drop them). Default: as a model next to the tokenizer, or no", None
    )
    overwrite: bool = option(
        "replace the sets in output_dir, those of splits that are not built now, too", False
    )

    @functools.cached_property
    def cleaning(self) -> CleaningConfig:
        return cleaning_for(self.tokenizer, lower=self.lower, keep_accents=self.keep_accents)

    @property
    def splits(self) -> list[str]:
        """The splits to build."""
        return [split for split in SPLITS if getattr(self, split)]

    def check(self) -> None:
        """Raises UserError for options that are out of range or do not fit each other."""
        check_fields(self)
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
        """Raises UserError unless a length has room for an option's tokens, special ones and the rest."""
        value, length = getattr(self, name), getattr(self, within)
        if not 1 <= value <= (most := length - num_special - 1):
            raise UserError(
                f"{name} is {value}, expected 1 to {most}, so that {within} {length} has room for {rest}"
            )

    def columns_of(self, cls: type[Columns]) -> Columns:
        """Returns a dataclass of a table's columns: each field NAME is what NAME_column says."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: getattr(self, f"{name}_column") for name in names})

    def load_tokenizer(self) -> XLNetTokenizer:
        """Raises FileNotFoundError if there is none."""
        return XLNetTokenizer(find_file(self.tokenizer), cleaning=self.cleaning)

    def writers(
        self, task: str, tokenizer: XLNetTokenizer, splits: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, ExampleWriter]:
        """Returns what writes the examples of each split, whose earlier ones are removed now.

        Args:
            task, tokenizer: as ExampleWriter takes them.
            splits: all that are built, with ExampleWriter's other arguments.

        Raises:
            UserError: output_dir has sets with other settings, or more splits than a new train, and they are
                not to be replaced.
        """
        self.claim(splits)
        folder = epath.Path(self.output_dir)
        writers = {
            split: ExampleWriter(
                folder / split,
                task=task,
                split=split,
                tokenizer=tokenizer,
                seq_len=self.seq_len,
                **arguments,
            )
            for split, arguments in splits.items()
        }
        there, new = _sets_in(folder), _settings(next(iter(writers.values())).example_set)
        different = [
            f"  {name}: {line}"
            for name, examples in there.items()
            for line in settings_difference(_settings(examples), new)
        ]
        if different and not self.overwrite:
            listed = "\n".join(different)
            raise UserError(
                f"{folder} holds examples with other settings: choose another --output_dir, or give "
                f"--overwrite to replace them. Differences:\n{listed}"
            )
        # Data to evaluate on may change by themselves.
        others = ", ".join(sorted(there.keys() - writers.keys()))
        if others and not self.overwrite and "train" in there and "train" in writers:
            raise UserError(
                f"{folder} would get a new train next to the old {others}: build {others}, too, or give "
                f"--overwrite to remove {others}"
            )
        for name in there if self.overwrite else there.keys() & writers.keys():
            discard(folder / name)
        return writers


def _sets_in(folder: epath.Path) -> dict[str, ExampleSet]:
    """Returns the finished sets of a folder's splits by their folders; damaged ones are as if unfinished."""
    found = {}
    for path in files.entries(folder):
        if path.is_dir() and folders.look(path)[0] == folders.EXAMPLES:
            with contextlib.suppress(UserError, FileNotFoundError):
                found[path.name] = ExampleSet.load(path)
    return found


def _settings(examples: ExampleSet) -> dict[str, Any]:
    """Returns what all splits of a data set have in common."""
    fields = {
        name: getattr(examples, name) for name in ("task", "seq_len", "sequences", "tokenizer", "cleaning")
    }
    settings = {name: value for name, value in examples.settings.items() if name not in _OF_A_SPLIT}
    return {**fields, "settings": settings}


def run(options: type[Options], build: Callable[[Options, bool], Mapping[str, ExampleSet]]) -> None:
    """Runs a builder's command: builds what the flags ask for and prints a summary.

    Args:
        options: the builder's options.
        build: the builder; its second argument is whether to draw progress bars.
    """
    define_flags(options)
    command_line.require_one_of(*SPLITS)
    errors.run(
        lambda _: print(example_report.summary(build(from_flags(options), True))),
        after_ctrl_c=BUILDS_ANEW,
    )
