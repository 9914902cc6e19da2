"""Which documents an adaptation trains on, which it is measured on, and which it must not see."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from run_scripts.adapt.leaks import HeldOut, letters
from tfrecord_builders import corpus
from tfrecord_builders.corpus import CorpusOptions
from tfrecord_builders.pretraining.dedup import equal_to_earlier, fingerprints
from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option

TRAIN, DEV, REPLAY, GENERAL = "domain-train", "domain-dev", "replay", "general-dev"
_SLICE_BYTES = 32 << 20
_MOST_DEV = 0.1  # of a corpus


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """The texts; each field is a flag."""

    input: Sequence[str] = option(
        "Texts of the domain: files, folders and globs of text, jsonl, parquet, csv or tsv, plain or "
        "compressed; of a labelled table, its texts."
    )
    text_column: Sequence[str] = option("Fields or columns with the text; several are joined.", ("text",))
    documents: str = option(
        "Where documents of text files end: at blank lines, or each file or each line is one.",
        "blank_lines",
        choices=("blank_lines", "files", "lines"),
    )
    general_input: Sequence[str] = option(
        "General text, like that of the checkpoint's pretraining: some is held out to measure forgetting, "
        "the rest is for --replay.",
        (),
    )
    general_dev_input: Sequence[str] = option(
        "General text to measure forgetting on, instead of a part of --general_input.", ()
    )
    replay: float = option("Share of general text in what is trained on.", 0.0, least=0, most=0.9)
    dev_mb: float = option(
        "MB of text to hold out for measuring, of the domain and of general text; at most a tenth.",
        0.2,
        positive=True,
    )


@dataclasses.dataclass(frozen=True)
class Survey:
    """What a corpus has, document by document.

    Attributes:
        contents: uint64 [documents], fingerprints of what `letters` gives.
        sizes: int64 [documents], bytes of text.
        leaks: bool [documents], whether one holds a text of the task's evaluation.
        repeated: bool [documents], whether an earlier document is equal.
    """

    contents: np.ndarray
    sizes: np.ndarray
    leaks: np.ndarray
    repeated: np.ndarray

    @property
    def usable(self) -> np.ndarray:
        """Numbers of the documents to choose from, in an order that depends on their contents alone."""
        numbers = np.flatnonzero(~self.leaks & ~self.repeated)
        return numbers[np.argsort(self.contents[numbers], kind="stable")]


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which documents go where.

    Attributes:
        surveys: of each corpus, by its flag.
        files: flag -> name of a file -> numbers of its documents.
    """

    surveys: Mapping[str, Survey]
    files: Mapping[str, Mapping[str, np.ndarray]]

    def counts(self) -> dict[str, dict[str, Any]]:
        """Returns documents, leaks and duplicates of each corpus, and documents and bytes of each file."""
        found: dict[str, dict[str, Any]] = {}
        for flag, survey in self.surveys.items():
            found[flag] = {
                "documents": len(survey.sizes),
                "leaks": int(survey.leaks.sum()),
                "duplicates": int((survey.repeated & ~survey.leaks).sum()),
            }
            for file, numbers in self.files[flag].items():
                found[flag][file] = {"documents": len(numbers), "bytes": int(survey.sizes[numbers].sum())}
        return found

    def write(self, options: TextOptions, folder: epath.Path) -> None:
        """Writes the chosen documents as jsonl, a file for each name."""
        for flag, chosen in self.files.items():
            for name, numbers in chosen.items():
                wanted = set(numbers.tolist())
                with files.replacing(folder / f"{name}.jsonl") as file:
                    for number, text in enumerate(read_documents(flag, options)):
                        if number in wanted:
                            file.write(json.dumps({"text": text}) + "\n")


def choose(options: TextOptions, held_out: HeldOut, seed: int) -> Choice:
    """Reads the corpora and chooses; writes nothing.

    Equal documents count once, and what is measured on, of either corpus, is not trained on. The choice
    depends on contents and seed alone.

    Args:
        options: the texts.
        held_out: texts of the task's dev and test sets; documents that hold one are left out.
        seed: of the choice for replay.

    Raises:
        UserError: a corpus is empty, unreadable or too small, or nothing of it is left.
        FileNotFoundError: a file is missing.
    """
    domain, measured = _survey("input", options.input, options, held_out), np.zeros(0, np.uint64)
    dev, train = _hold_out(domain, options.dev_mb, "input")
    chosen = {"input": {TRAIN: train, DEV: dev}}
    surveys = {"input": domain}
    if options.general_dev_input:
        general_dev = _survey("general_dev_input", options.general_dev_input, options, HeldOut([]))
        surveys["general_dev_input"] = general_dev
        chosen["general_dev_input"] = {GENERAL: np.flatnonzero(~general_dev.repeated)}
        measured = general_dev.contents
    if options.general_input:
        general = _survey("general_input", options.general_input, options, held_out)
        held, rest = general.usable[:0], general.usable
        if not options.general_dev_input:
            held, rest = _hold_out(general, options.dev_mb, "general_input")
            measured = general.contents[held]
        surveys["general_input"] = general
        chosen["general_input"] = {GENERAL: held} if len(held) else {}
        if options.replay:
            rest = _without(general, rest, np.union1d(measured, domain.contents[dev]))
            wanted = options.replay / (1 - options.replay) * domain.sizes[train].sum()
            chosen["general_input"][REPLAY] = _draw(general, rest, wanted, seed, options.replay)
    chosen["input"][TRAIN] = _without(domain, train, measured)
    if not len(chosen["input"][TRAIN]):
        raise UserError(
            "--input: every document to train on is general text to measure forgetting on, too: give other "
            "general text"
        )
    return Choice(surveys, chosen)


def _without(survey: Survey, numbers: np.ndarray, contents: np.ndarray) -> np.ndarray:
    """Returns the numbers of the documents that are none of these, which are measured on."""
    return numbers[~np.isin(survey.contents[numbers], contents)]


def check(options: TextOptions) -> None:
    """Raises UserError for options that do not fit together."""
    if options.replay and not options.general_input:
        raise UserError(f"replay is {options.replay:g}, but there is no general text: give --general_input")
    if not options.text_column:
        raise UserError("text_column is empty, expected the name of the column that holds the text")


def require(options: TextOptions) -> None:
    """Raises FileNotFoundError if a file of the texts is not there; reads no text."""
    for flag in ("input", "general_input", "general_dev_input"):
        if getattr(options, flag):
            with _naming(flag):
                _sources(flag, options)


def read_documents(flag: str, options: TextOptions) -> Iterator[str]:
    """Yields the documents of a corpus that have text.

    Raises:
        UserError: one cannot be read; the message has the flag.
        FileNotFoundError: a file is missing.
    """
    columns = options.text_column
    with _naming(flag):
        for shard in corpus.plan_shards(_sources(flag, options), _SLICE_BYTES):
            for row in corpus.read_rows(shard):
                missing = [name for name in columns if not corpus.is_text(row.values.get(name))]
                if row.error or missing:
                    has = f"{', '.join(row.values)} but no text in {', '.join(missing)}: see --text_column"
                    raise UserError(f"{row.where}: {row.error or f'there is {has}'}")
                if text := "\n".join(row.values[name].strip() for name in columns).strip():
                    yield text


@contextlib.contextmanager
def _naming(flag: str) -> Iterator[None]:
    """Puts the flag before errors that are raised within."""
    try:
        yield
    except (UserError, FileNotFoundError) as error:
        raise type(error)(f"--{flag}: {error}") from error


def _sources(flag: str, options: TextOptions) -> list[corpus.Source]:
    found = CorpusOptions(
        input=getattr(options, flag), text_field=options.text_column[0], documents=options.documents
    )
    return corpus.find_sources(found, tables=True)


def _survey(flag: str, paths: Sequence[str], options: TextOptions, held_out: HeldOut) -> Survey:
    contents, sizes, leaks = [], [], []
    for text in read_documents(flag, options):
        content = letters(text)
        contents += fingerprints([content.encode()])
        sizes.append(len(text.encode(errors="replace")))
        leaks.append(held_out.is_in(content))
    if not sizes:
        raise UserError(f"--{flag}: no document of {', '.join(paths)} has text")
    values = np.array(contents, np.uint64)
    survey = Survey(values, np.array(sizes, np.int64), np.array(leaks, bool), equal_to_earlier(values))
    if not len(survey.usable):
        raise UserError(
            f"--{flag}: every document of {', '.join(paths)} holds a text of the task's dev or test set: a "
            "model adapted to them could not be tested on them. Give other texts of the domain"
        )
    return survey


def _hold_out(survey: Survey, dev_mb: float, flag: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of the documents that are held out, and of the others."""
    usable = survey.usable
    most = min(dev_mb * 1e6, _MOST_DEV * survey.sizes[usable].sum())
    count = 1 + int(np.searchsorted(np.cumsum(survey.sizes[usable]), most))
    if count >= len(usable):
        raise UserError(
            f"--{flag}: {len(usable)} different documents are too few to hold some out: expected more, or "
            "shorter ones (--documents says where one ends)"
        )
    return np.sort(usable[:count]), np.sort(usable[count:])


def _draw(survey: Survey, numbers: np.ndarray, wanted: float, seed: int, share: float) -> np.ndarray:
    """Returns the numbers of documents with about `wanted` bytes together, drawn at random."""
    drawn = np.random.default_rng(seed).permutation(survey.usable[np.isin(survey.usable, numbers)])
    ends = np.cumsum(survey.sizes[drawn])
    if not len(ends) or ends[-1] < wanted:
        found = ends[-1] / 1e6 if len(ends) else 0
        raise UserError(
            f"replay is {share:g}, which takes {wanted / 1e6:.1f} MB of general text, but --general_input "
            f"has {found:.1f}: lower --replay, or give more"
        )
    return np.sort(drawn[: 1 + int(np.argmin(np.abs(ends - wanted)))])
