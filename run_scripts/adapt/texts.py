"""Which documents an adaptation trains on, measures on, and must not see."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from run_scripts.adapt.leaks import HeldOut, letters
from tfrecord_builders import corpus
from tfrecord_builders.pretraining.dedup import fingerprints
from xlnet_tf import files
from xlnet_tf.errors import UserError, prefixed
from xlnet_tf.flags import option

TRAIN, DEV, REPLAY, GENERAL = "domain-train", "domain-dev", "replay", "general-dev"
_CORPORA = ("input", "general_dev_input", "general_input")
_SLICE_BYTES = 32 << 20
_MOST_DEV = 0.1  # of a corpus
Documents = dict[int, int]  # bytes of text by the fingerprint of what `letters` gives, in its order


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

    def check(self) -> None:
        """Raises UserError or FileNotFoundError if options do not fit or a file is missing; reads no text."""
        if self.replay and not self.general_input:
            raise UserError(f"replay is {self.replay:g}, but there is no general text: give --general_input")
        for flag in _CORPORA:
            self._sources(flag)

    def _sources(self, flag: str) -> list[corpus.Source]:
        options = corpus.CorpusOptions(
            getattr(self, flag), text_field=next(iter(self.text_column), ""), documents=self.documents
        )
        with prefixed(f"--{flag}"):
            return corpus.find_sources(options, tables=True) if options.input else []

    def read(self, flag: str) -> Iterator[tuple[int, str]]:
        """Yields the documents of a corpus that have text, each as (`letters` of it, text)."""
        sources = self._sources(flag)
        with prefixed(f"--{flag}"):
            for row in itertools.chain.from_iterable(
                map(corpus.read_rows, corpus.plan_shards(sources, _SLICE_BYTES))
            ):
                missing = [name for name in self.text_column if not corpus.is_text(row.values.get(name))]
                if row.error or missing:
                    has = f"{', '.join(row.values)} but no text in {', '.join(missing)}: see --text_column"
                    raise UserError(f"{row.where}: {row.error or f'there is {has}'}")
                if text := "\n".join(row.values[name].strip() for name in self.text_column).strip():
                    yield letters(text), text


def choose(
    options: TextOptions, held_out: HeldOut, seed: int
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Documents]]]:
    """Reads the corpora and chooses sets of documents; writes nothing.

    Equal documents count once, and documents of either corpus that are measured on are not trained on. The
    choice depends on contents and seed alone. Documents that contain a text of `held_out`, the task's dev and
    test sets, are left out.

    Returns the counts of each corpus, and the sets chosen from it by their names, each by the corpus' flag.
    """
    found, counts = {}, {}
    for flag in filter(options.__getattribute__, _CORPORA):
        found[flag], counts[flag] = _survey(
            flag, options, HeldOut([]) if flag == "general_dev_input" else held_out
        )
    dev, train = _hold_out(found["input"], options.dev_mb, "input")
    sets: dict[str, dict[str, Documents]] = {flag: {} for flag in found}
    measured = found.get("general_dev_input", {})
    if options.general_dev_input:
        sets["general_dev_input"][GENERAL] = measured
    if options.general_input:
        rest = found["general_input"]
        if not measured:
            measured, rest = _hold_out(rest, options.dev_mb, "general_input")
            sets["general_input"][GENERAL] = measured
        if options.replay:
            wanted = options.replay / (1 - options.replay) * sum(train.values())
            sets["general_input"][REPLAY] = _draw(_without(rest, measured, dev), wanted, seed, options.replay)
    sets["input"] = {TRAIN: _without(train, measured), DEV: dev}
    if not sets["input"][TRAIN]:
        raise UserError(
            "--input: every document to train on is general text to measure forgetting on, too: give other "
            "general text"
        )
    for flag, chosen in sets.items():
        for name, each in chosen.items():
            counts[flag][name] = {"documents": len(each), "bytes": sum(each.values())}
    return counts, sets


def write(options: TextOptions, sets: Mapping[str, Mapping[str, Documents]], folder: epath.Path) -> None:
    """Writes the sets of documents that `choose` returns as jsonl files."""
    for flag, chosen in sets.items():
        for name, documents in chosen.items():
            left = set(documents)
            with files.replacing(folder / f"{name}.jsonl") as file:
                for content, text in options.read(flag):
                    if (key := _key(content)) in left:
                        left.remove(key)
                        file.write(json.dumps({"text": text}) + "\n")


def _key(content: str) -> int:
    return fingerprints([content.encode()])[0]


def _survey(flag: str, options: TextOptions, held_out: HeldOut) -> tuple[Documents, dict[str, Any]]:
    """Returns the documents of a corpus that can be chosen, and counts of all and of those left out."""
    found: Documents = {}
    documents = leaks = 0
    for content, text in options.read(flag):
        documents += 1
        if held_out.is_in(content):
            leaks += 1
        else:
            found.setdefault(_key(content), len(text.encode(errors="replace")))
    paths = ", ".join(getattr(options, flag))
    if not documents:
        raise UserError(f"--{flag}: no document of {paths} has text")
    if not found:
        raise UserError(
            f"--{flag}: every document of {paths} holds a text of the task's dev or test set: a model "
            "adapted to them could not be tested on them. Give other texts of the domain"
        )
    counts = {"documents": documents, "leaks": leaks, "duplicates": documents - leaks - len(found)}
    return dict(sorted(found.items())), counts


def _without(documents: Documents, *others: Documents) -> Documents:
    return {key: size for key, size in documents.items() if not any(key in other for other in others)}


def _hold_out(documents: Documents, dev_mb: float, flag: str) -> tuple[Documents, Documents]:
    """Returns the held-out documents, and the others."""
    most = min(dev_mb * 1e6, _MOST_DEV * sum(documents.values()))
    items = list(documents.items())
    count = 1 + int(np.searchsorted(np.cumsum([size for _, size in items]), most))
    if count >= len(items):
        raise UserError(
            f"--{flag}: {len(items)} different documents are too few to hold some out: expected more, or "
            "shorter ones (--documents says where one ends)"
        )
    return dict(items[:count]), dict(items[count:])


def _draw(documents: Documents, wanted: float, seed: int, share: float) -> Documents:
    """Returns random documents of about `wanted` bytes in total."""
    items = list(documents.items())
    drawn = [items[number] for number in np.random.default_rng(seed).permutation(len(items))]
    ends = np.cumsum([size for _, size in drawn])
    if (found := sum(documents.values())) < wanted:
        raise UserError(
            f"replay is {share:g}, which takes {wanted / 1e6:.1f} MB of general text, but --general_input "
            f"has {found / 1e6:.1f}: lower --replay, or give more"
        )
    return dict(drawn[: 1 + int(np.argmin(np.abs(ends - wanted)))])
