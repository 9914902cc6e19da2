"""Builds examples for tagging words: entities, parts of speech, from column files or your own texts."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tfrecord_builders.common.example_builder import Example, ExampleOptions, Split, build_sets, hold_out
from tfrecord_builders.common.tables import check_exists
from tfrecord_builders.tagging.data import (
    AnnotatedText,
    ReadColumns,
    TaggedWords,
    names_in_ids,
    read_sentences,
)
from tfrecord_builders.tagging.examples import NUM_SPECIAL, text_examples
from tfrecord_builders.tagging.schemes import SCHEMES, TAGS, label_set, to_bio
from tfrecord_builders.tagging.words import Sentence, SentenceEncoder
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.records.input_counts import is_unknown
from xlnet_tf.records.layout import Column
from xlnet_tf.text.marks import DroppedMarks
from xlnet_tf.text.offsets import check_offsets
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.words import mark_entities

TASK = "tagging"

Row = TaggedWords | AnnotatedText

_FILES = (
    "files of the train split: columns, CoNLL-U (.conllu), or jsonl or json with tokens or texts, plain or "
    ".gz; Parquet, Arrow, or a folder of such files; hf://datasets/OWNER/NAME/SPLIT or tfds://NAME/SPLIT"
)
_LIKE_TRAIN = "files of the {} split, in a form of --train"


@dataclasses.dataclass(frozen=True)
class TaggingOptions(ExampleOptions):
    """What to build; each field is a flag. None means the default that the help states."""

    train: Sequence[str] = option(_FILES, (), group="data")
    dev: Sequence[str] = option(_LIKE_TRAIN.format("dev"), (), group="data")
    test: Sequence[str] = option(_LIKE_TRAIN.format("test") + "; tags may be missing", (), group="data")
    types: Sequence[str] = option(
        "types of entities, or with --scheme=tags all tags. Default: those of the training data", ()
    )
    word_column: int = option(
        "files of columns: that of the words, from 0; -1 is the last one", 0, group="data"
    )
    tag_column: int = option("files of columns: that of the tags", -1, group="data")
    tokens_column: str = option("other files: column of the words, a list", "tokens", group="data")
    tags_column: str = option("other files: column of the tags, a list", "tags", group="data")
    scheme: str = option(
        "how tags mark entities, stored as BIO; tags: they mark none, each word has one (parts of speech)",
        "bio",
        choices=(*SCHEMES, TAGS),
        group="data",
    )
    repair: bool = option("repair and count tags that the scheme does not allow; else they are errors", True)
    seq_len: int = option("tokens of a sequence", 128, least=8, group="examples")
    stride: int | None = option(
        "pieces between the starts of two windows. Default: half a sequence", None, least=1
    )
    document: bool = option("make all sentences of a document one text", False)

    @property
    def room(self) -> int:
        return self.seq_len - NUM_SPECIAL

    def check(self) -> None:
        super().check()
        if not (self.train or self.types):
            raise UserError(
                "without --train, the types of entities are not known: give --types, as the model has"
            )
        if len(set(self.types)) < len(self.types) or not all(self.types):
            raise UserError(
                f"--types are {', '.join(map(repr, self.types))}; expected names, each of them once"
            )
        if self.stride is not None and not 0 < self.stride <= self.room:
            raise UserError(
                f"stride is {self.stride}, expected 1 to {self.room}, the pieces of a window of "
                f"{self.seq_len} tokens"
            )


def build_tagging(options: TaggingOptions, progress: bool = False) -> dict[str, ExampleSet]:
    """Builds the requested splits.

    Columns are `tags` int16 [T]: the index in settings["labels"] of each predicted word's tag at its first
    piece, -1 elsewhere. A line of examples.jsonl has `parts`: the predicted parts of sentences, from word
    number `first` on, with id, text (where first is 0), and of each word its offsets [begin, end) in the
    text, its position in the sequence and its tag (tags is null where they are not known).
    """
    options.check()
    tokenizer = options.load_tokenizer()
    files = {split: getattr(options, split) for split in options.splits}
    for file in itertools.chain.from_iterable(files.values()):
        check_exists(file)  # found out before a split is written, which may take long
    columns = ReadColumns(options.word_column, options.tag_column, options.tokens_column, options.tags_column)
    inputs = {split: _Input(split == "test", each, columns) for split, each in files.items()}
    if options.dev_fraction:
        inputs |= _held_out(inputs["train"], options.dev_fraction, options.document)
    if options.scheme == TAGS:
        labels = _plain_tags(options.types or _tags(inputs["train"]))
    else:
        labels = label_set(options.types or _types(inputs["train"], options.scheme))
    marks, totals = DroppedMarks(options.cleaning), dict.fromkeys(inputs, 0)
    tagged, first_text = dict.fromkeys(inputs, True), ""
    for split, read in inputs.items():
        for row in read.rows():
            is_text = isinstance(row, AnnotatedText)
            marks.add(row.text if is_text else " ".join(row.words))
            first_text = first_text or (row.location if is_text else "")
            totals[split] += 1
            tagged[split] = row.types is not None
    if first_text:
        check_offsets(tokenizer, options.tokenizer, f"the text in {first_text}")
    marks.warn()
    stride = options.stride or options.room // 2
    examples = _Examples(options, tokenizer, stride, labels)

    def read_split(name: str) -> Split[Row]:
        settings = {"labels": labels, "tagged": tagged[name], "stride": stride, "document": options.document}
        tags = Column("tags", "int16", options.seq_len)
        return Split(inputs[name].rows(), totals[name], [tags], settings, examples.of)

    return build_sets(TASK, options, tokenizer, options.built, read_split, "sentences", progress)


@dataclasses.dataclass(frozen=True)
class _Input:
    """The files of a split; `mask` bool [rows] has which of their rows are used, None: all."""

    is_test: bool
    files: Sequence[str]
    columns: ReadColumns
    mask: np.ndarray | None = None

    def rows(self) -> Iterator[Row]:
        rows = self._checked_rows()
        return rows if self.mask is None else itertools.compress(rows, self.mask)

    def _checked_rows(self) -> Iterator[Row]:
        """Reads the files and checks that tags are known: always, or in test data in all rows or in none."""
        rows = itertools.chain.from_iterable(
            self._file_rows(number, file, name)
            for number, (file, name) in enumerate(zip(self.files, names_in_ids(self.files)))
        )
        first = next(rows, None)
        if first is None:
            raise UserError(f"no sentences in {', '.join(self.files)}: check the files")
        tagged = not self.is_test or first.types is not None
        for row in itertools.chain([first], rows):
            if (row.types is not None) != tagged:
                found = f" among the fields {', '.join(row.columns)}" if row.columns else ""
                reason = f"no tags{found}" if tagged else "tags, but none before"
                raise UserError(
                    f"{row.location}: {reason}. Training and dev data have tags, test data everywhere or "
                    f"nowhere: in columns, column {self.columns.tag} (--tag_column) next to the words in "
                    f"{self.columns.word} (--word_column); in jsonl, {self.columns.tags!r} (--tags_column "
                    "names another field) or 'entities'. Tags are names such as B-LOC: write them for numbers"
                )
            yield row

    def _file_rows(self, number: int, file: str, name: str) -> Iterator[Row]:
        """Reads the `number`th file; no document continues in the next file."""
        for row in read_sentences(file, self.columns, name):
            yield dataclasses.replace(row, document=f"{number}:{row.document}")


def _held_out(train: _Input, fraction: float, whole_documents: bool) -> dict[str, _Input]:
    """Returns the rows of train that stay, and those held out as dev: sentences or documents, by text."""
    documents: dict[str, list[str]] = {}
    names = []
    for row in train.rows():
        text = row.text if isinstance(row, AnnotatedText) else " ".join(row.words)
        names.append(row.document if whole_documents else text)
        documents.setdefault(names[-1], []).append(text)
    source = ",".join(train.files)
    _, held = hold_out(
        [*documents], lambda name: "\n".join(documents[name] if whole_documents else [name]), fraction, source
    )
    mask = np.isin(names, held)
    return {"train": dataclasses.replace(train, mask=~mask), "dev": dataclasses.replace(train, mask=mask)}


def _types(train: _Input, scheme: str) -> set[str]:
    types = set().union(*(row.types for row in train.rows()))
    if not types:
        _check_tags(train, scheme)
        raise UserError(
            f"no entities in {', '.join(train.files)}: expected some to learn from. Is --tag_column="
            f"{train.columns.tag} the column of their tags?"
        )
    return types


def _tags(train: _Input) -> set[str]:
    """Returns the tags in the training data, which mark no entities."""
    tags: set[str] = set()
    for row in train.rows():
        if isinstance(row, AnnotatedText):
            raise UserError(
                f"{row.location}: a text with entities, but --scheme={TAGS} is for words with a tag each: "
                "leave --scheme out"
            )
        if not all(row.tags):
            raise UserError(
                f"{row.location_of(row.tags.index(''))}: the tag is empty, expected one: give it _"
            )
        tags.update(row.tags)
    return tags


def _plain_tags(tags: Iterable[str]) -> list[str]:
    """Returns tags in alphabetical order; UserError if they mark entities."""
    labels = sorted(tags)
    if len(labels) < 2 or mark_entities(labels):
        wrong = next((label for label in labels if mark_entities([label])), ", ".join(labels))
        raise UserError(
            f"--scheme={TAGS}: the tags have {wrong}, expected at least two that do not begin with B- or I-: "
            "tags of entities have another --scheme, such as bio"
        )
    return labels


def _check_tags(train: _Input, scheme: str) -> None:
    """Raises UserError for the first tag outside the scheme: the reason why no entities were found."""
    for row in train.rows():
        if not isinstance(row, TaggedWords):
            continue
        try:
            to_bio(row.tags, scheme)
        except ValueError as error:
            word, reason = error.args
            raise UserError(
                f"{row.location_of(word)}: {reason}. Are the tags in another column (--tag_column, "
                "--tags_column)?"
            ) from None


@dataclasses.dataclass(frozen=True)
class _Examples:
    """Converts the rows of a split to examples, of a sentence or of all sentences of a document."""

    options: TaggingOptions
    tokenizer: XLNetTokenizer
    stride: int
    labels: Sequence[str]

    def of(self, rows: Iterable[Row], writer: ExampleWriter) -> Iterator[Example]:
        lengths = []
        for text in self._texts(rows, writer):
            words = [word for sentence in text for word in sentence.pieces]
            pieces = [len(word) for word in words]
            lengths.append(sum(pieces))
            writer.count("sentences", len(text))
            writer.count("words", len(pieces))
            writer.count("words of <unk> alone", sum(is_unknown(word, self.tokenizer) for word in words))
            writer.count("words cut to a sequence's length", sum(n > self.options.room for n in pieces))
            windows = [*text_examples(text, self.labels, self.options.seq_len, self.stride)]
            yield from windows
            writer.count("texts in several windows", int(len(windows) > 1))
        for percent in (50, 95, 100) if lengths else ():
            name = (
                f"pieces of a {'document' if self.options.document else 'sentence'}, {percent}th percentile"
            )
            writer.count(name, int(np.percentile(lengths, percent)))

    def _texts(self, rows: Iterable[Row], writer: ExampleWriter) -> Iterator[list[Sentence]]:
        """Yields the sentences of each text: one, or all sentences of a document."""
        sentences = self._sentences(rows, writer)
        if not self.options.document:
            yield from ([sentence] for sentence in sentences)
            return
        for _, document in itertools.groupby(sentences, lambda sentence: sentence.document):
            yield list(document)

    def _sentences(self, rows: Iterable[Row], writer: ExampleWriter) -> Iterator[Sentence]:
        encoder = SentenceEncoder(self.tokenizer, self.options.scheme, self.options.repair)
        for row in rows:
            sentence = encoder.encode(row, writer)
            if not sentence.pieces:
                writer.skip("no words", row.location)
                continue
            for word, tag in enumerate(sentence.tags or ()):
                if tag not in self.labels:
                    raise self._unknown(tag, row.location_of(word))
            yield sentence

    def _unknown(self, tag: str, location: str) -> UserError:
        kind, name, known = "tag", tag, self.labels
        if mark_entities(self.labels):
            kind, name, known = "type", tag[2:], [label[2:] for label in self.labels[1::2]]
        every = "all types" if kind == "type" else "all tags"
        return UserError(
            f"{location}: unknown {kind} {name!r}; known are {', '.join(known)} (from the training data or "
            f"--types): correct it, or give {every} with --types"
        )
