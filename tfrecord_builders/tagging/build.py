"""Builds examples for tagging words: entities in CoNLL-2003's column files, or in your own texts."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tfrecord_builders.common.example_builder import ExampleOptions
from tfrecord_builders.common.tables import check_exists
from tfrecord_builders.tagging.data import AnnotatedText, TaggedWords, names_in_ids, read_sentences
from tfrecord_builders.tagging.examples import NUM_SPECIAL, text_examples
from tfrecord_builders.tagging.schemes import SCHEMES, label_set, to_bio
from tfrecord_builders.tagging.words import Sentence, SentenceEncoder
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.records.input_counts import is_unknown
from xlnet_tf.records.layout import Column
from xlnet_tf.text.marks import DroppedMarks
from xlnet_tf.text.offsets import check_offsets
from xlnet_tf.text.tokenizer import XLNetTokenizer

TASK = "tagging"

_FILES = (
    "files of the {} split: columns, or .jsonl with tokens or texts, plain or .gz; Parquet, Arrow, or a "
    "folder of such files; hf://datasets/OWNER/NAME/SPLIT or tfds://NAME/SPLIT"
)


@dataclasses.dataclass(frozen=True)
class TaggingOptions(ExampleOptions):
    """What to build; each field is a flag. None means the default that the help states."""

    train: Sequence[str] = option(_FILES.format("train"), ())
    dev: Sequence[str] = option(_FILES.format("dev"), ())
    test: Sequence[str] = option(_FILES.format("test") + ", tags may be missing", ())
    types: Sequence[str] = option("types of entities. Default: those of the training data", ())
    word_column: int = option("files of columns: that of the words, from 0; -1 is the last one", 0)
    tag_column: int = option("files of columns: that of the tags", -1)
    tokens_column: str = option("other files: column of the words, a list", "tokens")
    tags_column: str = option("other files: column of the tags, a list", "tags")
    scheme: str = option("how tags mark entities; stored as BIO", "bio", choices=tuple(SCHEMES))
    repair: bool = option("repair and count tags that the scheme does not allow; else they are errors", True)
    seq_len: int = option("tokens of a sequence", 128, least=8)
    stride: int | None = option(
        "pieces between the starts of two windows. Default: half a sequence", None, least=1
    )
    document: bool = option("make all sentences of a document one text", False)

    @property
    def room(self) -> int:
        """Pieces of text in a sequence."""
        return self.seq_len - NUM_SPECIAL

    def check(self) -> None:
        """Raises UserError for options that are out of range or do not fit each other."""
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
    """Builds the splits that are asked for.

    Args:
        options: what to build.
        progress: whether to draw progress bars on stderr.

    Returns:
        split -> its set of examples. Columns: `tags` int16 [T], at the first piece of each word that the
        example predicts the number of its tag among settings["labels"], -1 elsewhere. A line of
        examples.jsonl has `parts`, those of its sentences that the example predicts, all of them or from word
        number `first` on: id, text (where first is 0), and of each word its offsets [begin, end) in the text,
        its position in the sequence and its tag (tags is null where they are not known).

    Raises:
        FileNotFoundError: an input is not there.
        UserError: options or input are not as they should be; the message has file and line.
    """
    options.check()
    tokenizer = options.load_tokenizer()
    for file in itertools.chain.from_iterable(getattr(options, split) for split in options.splits):
        check_exists(file)  # found out before a split is written, which may take long
    labels = label_set(options.types or _types(options))
    marks, totals = DroppedMarks(options.cleaning), dict.fromkeys(options.splits, 0)
    tagged, first_text = dict.fromkeys(options.splits, True), ""
    for split in options.splits:
        for row in _rows(split, options):
            is_text = isinstance(row, AnnotatedText)
            marks.add(row.text if is_text else " ".join(row.words))
            first_text = first_text or (row.location if is_text else "")
            totals[split] += 1
            tagged[split] = row.types is not None
    if first_text:
        check_offsets(tokenizer, options.tokenizer, f"the text in {first_text}")
    marks.warn()
    arguments = {
        split: {
            "columns": [Column("tags", "int16", options.seq_len)],
            "settings": {
                "labels": labels,
                "tagged": tagged[split],
                "stride": options.stride or options.room // 2,
                "document": options.document,
            },
        }
        for split in totals
    }
    return {
        split: _write_split(split, totals[split], writer, tokenizer, options, progress)
        for split, writer in options.writers(TASK, tokenizer, arguments).items()
    }


def _rows(split: str, options: TaggingOptions) -> Iterator[TaggedWords | AnnotatedText]:
    """Reads a split and checks that tags are known: always, or in test data in all rows or in none."""
    files = getattr(options, split)
    rows = itertools.chain.from_iterable(
        _file_rows(number, file, name, options)
        for number, (file, name) in enumerate(zip(files, names_in_ids(files)))
    )
    first = next(rows, None)
    if first is None:
        raise UserError(f"no sentences in {', '.join(files)}: check the files")
    tagged = split != "test" or first.types is not None
    for row in itertools.chain([first], rows):
        if (row.types is not None) != tagged:
            found = f" among the fields {', '.join(row.columns)}" if row.columns else ""
            reason = f"no tags{found}" if tagged else "tags, but none before"
            raise UserError(
                f"{row.location}: {reason}. Training and dev data have tags, test data everywhere or "
                f"nowhere: in columns, column {options.tag_column} (--tag_column) next to the words in "
                f"{options.word_column} (--word_column); in jsonl, {options.tags_column!r} (--tags_column "
                "names another field) or 'entities'. Tags are names such as B-LOC: write them for numbers"
            )
        yield row


def _file_rows(
    number: int, file: str, name: str, options: TaggingOptions
) -> Iterator[TaggedWords | AnnotatedText]:
    """Reads the `number`th file of a split; no document continues in the next file."""
    columns = (options.word_column, options.tag_column, options.tokens_column, options.tags_column)
    for row in read_sentences(file, *columns, name):
        yield dataclasses.replace(row, document=f"{number}:{row.document}")


def _types(options: TaggingOptions) -> set[str]:
    types = set().union(*(row.types for row in _rows("train", options)))
    if not types:
        _check_tags(options)
        raise UserError(
            f"no entities in {', '.join(options.train)}: expected some to learn from. Is --tag_column="
            f"{options.tag_column} the column of their tags?"
        )
    return types


def _check_tags(options: TaggingOptions) -> None:
    """Raises UserError at the first tag that the scheme does not have: why no entities were found."""
    for row in _rows("train", options):
        if not isinstance(row, TaggedWords):
            continue
        try:
            to_bio(row.tags, options.scheme)
        except ValueError as error:
            word, reason = error.args
            raise UserError(
                f"{row.location_of(word)}: {reason}. Are the tags in another column (--tag_column, "
                "--tags_column)?"
            ) from None


def _write_split(
    split: str,
    total: int,
    writer: ExampleWriter,
    tokenizer: XLNetTokenizer,
    options: TaggingOptions,
    progress: bool,
) -> ExampleSet:
    labels, stride = (writer.example_set.settings[name] for name in ("labels", "stride"))
    lengths = []
    with (
        writer,
        ProgressBar(_rows(split, options), split, total, unit=" sentences", disable=not progress) as bar,
    ):
        sentences = _sentences(bar, labels, tokenizer, options, writer)
        for text in _texts(sentences, options.document):
            words = [word for sentence in text for word in sentence.pieces]
            pieces = [len(word) for word in words]
            lengths.append(sum(pieces))
            writer.count("sentences", len(text))
            writer.count("words", len(pieces))
            writer.count("words of <unk> alone", sum(is_unknown(word, tokenizer) for word in words))
            writer.count("words cut to a sequence's length", sum(n > options.room for n in pieces))
            written = 0
            for columns, sidecar in text_examples(text, labels, options.seq_len, stride):
                writer.write(columns, sidecar)
                written += 1
            writer.count("texts in several windows", int(written > 1))
        for percent in (50, 95, 100) if lengths else ():
            name = f"pieces of a {'document' if options.document else 'sentence'}, {percent}th percentile"
            writer.count(name, int(np.percentile(lengths, percent)))
    return writer.example_set


def _sentences(
    rows: Iterable[TaggedWords | AnnotatedText],
    labels: Sequence[str],
    tokenizer: XLNetTokenizer,
    options: TaggingOptions,
    writer: ExampleWriter,
) -> Iterator[Sentence]:
    """Yields the rows' sentences; those without words are skipped."""
    encoder = SentenceEncoder(tokenizer, options.scheme, options.repair)
    for row in rows:
        sentence = encoder.encode(row, writer)
        if not sentence.pieces:
            writer.skip("no words", row.location)
            continue
        for word, tag in enumerate(sentence.tags or ()):
            if tag not in labels:
                raise UserError(
                    f"{row.location_of(word)}: unknown type {tag[2:]!r}; known are "
                    f"{', '.join(label[2:] for label in labels[1::2])} (from the training data or --types): "
                    "correct it, or give all types with --types"
                )
        yield sentence


def _texts(sentences: Iterable[Sentence], whole_documents: bool) -> Iterator[list[Sentence]]:
    """Yields what makes one text: a sentence, or all sentences of a document."""
    if not whole_documents:
        yield from ([sentence] for sentence in sentences)
        return
    for _, document in itertools.groupby(sentences, lambda sentence: sentence.document):
        yield list(document)
