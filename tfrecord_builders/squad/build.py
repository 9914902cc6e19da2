"""Builds examples of extractive question answering from files in the format of SQuAD 1.1 or 2.0."""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfrecord_builders.common.example_builder import Example, ExampleOptions, Split, build_sets, hold_out
from tfrecord_builders.common.tables import SOURCES
from tfrecord_builders.squad.data import SquadColumns, SquadPassage, SquadQuestion, locate, read_squad
from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.hub import checksums
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.records.layout import Column
from xlnet_tf.records.passages import PASSAGES_FILE
from xlnet_tf.records.passages import Passage as EncodedPassage
from xlnet_tf.text import windows as windows_lib
from xlnet_tf.text.marks import warn_of_dropped_marks
from xlnet_tf.text.offsets import Encoded, check_offsets, encode_with_offsets
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.windows import Window

TASK = "squad"
SKIPPED_FILE = "skipped.jsonl"
_FILE = f"the train split: SQuAD's json, plain or .gz, or a table ({SOURCES})"
_LIKE_TRAIN = "the {} split, in a form of --train"


@dataclasses.dataclass(frozen=True)
class SquadOptions(ExampleOptions):
    """What to build; each field is a flag."""

    train: str = option(_FILE, "", group="data")
    dev: str = option(_LIKE_TRAIN.format("dev"), "", group="data")
    test: str = option(_LIKE_TRAIN.format("test"), "", group="data")
    context_column: str = option("tables: column of the passage", "context", group="data")
    question_column: str = option("tables: column of the question", "question", group="data")
    answers_column: str = option(
        "tables: column of the answers, with their text and answer_start, or of one answer's text",
        "answers",
        group="data",
    )
    id_column: str = option("tables: column of the question's id, if any", "id")
    seq_len: int = option("tokens of a window with its question", 512, least=5, group="examples")
    max_question_len: int = option("most tokens of a question; the rest is cut", 64, least=1)
    stride: int = option("tokens from one window of a passage to the next", 128, least=1)
    segment_len: int = option(
        "tokens of the segments that the model is to read a window in, with memory; each has the question. "
        "A divisor of --seq_len; 0: a window is read at once",
        0,
        least=0,
    )

    def check(self) -> None:
        super().check()
        if self.segment_len and (self.seq_len % self.segment_len or self.segment_len == self.seq_len):
            raise UserError(
                f"segment_len is {self.segment_len}, expected a divisor of seq_len {self.seq_len} that is "
                "smaller, as half of it, or 0"
            )
        read_at_once = "segment_len" if self.segment_len else "seq_len"
        self.check_room("max_question_len", windows_lib.NUM_SPECIAL, "some of the passage", read_at_once)


class Span(NamedTuple):
    """The first and last token of an answer in its passage, both inclusive."""

    first: int
    last: int


class Unusable(Exception):
    """A training question that cannot be learned from; the text is the reason."""


def build_squad(options: SquadOptions, progress: bool = False) -> dict[str, ExampleSet]:
    """Builds the requested splits.

    "train" has the columns answer_mask uint8 [T], answer_first and answer_last int32, the positions of the
    answer's tokens, and is_impossible uint8. A window without the whole answer has both positions on CLS and
    is_impossible 1, as in the original; in 1.1, too, where it teaches to compare windows. Unusable questions
    are skipped. The other splits have only answer_mask and all questions.

    A line of examples.jsonl has the question's `id`, text and answers (null if not known), the number of its
    `passage`, and the window's `first` token and `length`. settings["unanswerable"] is whether some questions
    have no answer, settings["answered"] whether answers are known.
    """
    options.check()
    tokenizer = options.load_tokenizer()
    check_offsets(tokenizer, options.tokenizer, "an answer in a passage")
    columns = options.columns_of(SquadColumns)
    inputs = {split: read_squad(getattr(options, split), columns) for split in options.splits}
    if options.dev_fraction:
        whole = inputs["train"]
        parts = hold_out(whole.passages, lambda each: each.text, options.dev_fraction, options.train)
        inputs |= {name: whole._replace(passages=part) for name, part in zip(("train", "dev"), parts)}
    train = inputs.get("train")
    if train and train.columns and not (train.answered or train.unanswerable):
        raise UserError(
            f"{options.train} has the columns {', '.join(train.columns)}, and no answer in "
            f"{columns.answers!r}: name the column of the answers with --answers_column"
        )
    passages = (passage for file in inputs.values() for passage in file.passages)
    texts = (
        "\n".join([passage.text, *(question.text for question in passage.questions)]) for passage in passages
    )
    warn_of_dropped_marks(texts, options.cleaning)
    settings = {
        "unanswerable": any(file.unanswerable for file in inputs.values()),
        "max_question_len": options.max_question_len,
        "stride": options.stride,
    }
    if options.segment_len:
        settings["segment_len"] = options.segment_len

    def read(name: str) -> Split[SquadQuestion]:
        file, columns = inputs[name], [Column("answer_mask", "uint8", options.seq_len)]
        if name == "train":
            columns += [Column(column, "int32", None) for column in ("answer_first", "answer_last")]
            columns.append(Column("is_impossible", "uint8", None))
        source = getattr(options, name) or options.train
        examples = _Examples(options, tokenizer, name == "train", file.passages, source)
        questions = [question for passage in file.passages for question in passage.questions]
        return Split(questions, len(questions), columns, {**settings, "answered": file.answered}, examples.of)

    return build_sets(TASK, options, tokenizer, options.built, read, "questions", progress)


@dataclasses.dataclass(frozen=True)
class _Examples:
    """Converts the questions of a split, and writes their passages; training ones can be learned from."""

    options: SquadOptions
    tokenizer: XLNetTokenizer
    training: bool
    passages: Sequence[SquadPassage]
    source: str

    def of(self, questions: Iterable[SquadQuestion], writer: ExampleWriter) -> Iterator[Example]:
        """Yields the examples, and writes the passages and the skipped questions next to them."""
        folder = writer.example_set.folder
        checksums.remove(folder)
        remaining, lengths = iter(questions), []
        with (
            files.replacing(folder / PASSAGES_FILE) as passages_file,
            files.replacing(folder / SKIPPED_FILE) as skipped_file,
        ):
            for number, passage in enumerate(self.passages):
                encoded = encode_with_offsets(self.tokenizer, passage.text)
                offsets = encoded.begins.tolist(), encoded.ends.tolist()
                EncodedPassage(passage.text, *offsets).write(passages_file)
                for question in itertools.islice(remaining, len(passage.questions)):
                    writer.count("questions")
                    try:
                        yield from self._windows(question, passage, number, encoded, writer)
                    except Unusable as reason:
                        writer.skip(str(reason), f"{question.location} ({question.id})")
                        line = {"reason": str(reason), **_described(question)}
                        skipped_file.write(json.dumps(line, ensure_ascii=False) + "\n")
                lengths.append(len(encoded.ids))
            writer.check_any(self.source)
        writer.count_lengths("pieces of a passage", lengths)
        checksums.write(folder, [PASSAGES_FILE])

    def _windows(
        self,
        question: SquadQuestion,
        passage: SquadPassage,
        number: int,
        encoded: Encoded,
        writer: ExampleWriter,
    ) -> Iterator[Example]:
        """Yields the windows of a question about the split's `number`th passage; may raise Unusable."""
        ids, sizes = self.tokenizer.encode(question.text), (self.options.seq_len, self.options.segment_len)
        length = min(len(ids), self.options.max_question_len)
        room = windows_lib.window_room(length, *sizes)
        windows = windows_lib.split_windows(len(encoded.ids), room, self.options.stride)
        answer = _training_answer(question, passage, encoded, writer) if self.training else None
        if answer and not any(inside(answer, window) for window in windows):
            raise Unusable("answer in no window")
        writer.count("questions without an answer", int(question.answers == []))
        writer.count("questions cut", int(len(ids) > length))
        for window in windows:
            columns = {
                **windows_lib.pack_window(encoded.ids, window, ids[:length], *sizes)._asdict(),
                "answer_mask": windows_lib.answer_mask(window, length, *sizes),
            }
            if self.training:
                columns |= training_columns(answer, window, length, self.options.segment_len)
                missed = answer is not None and columns["is_impossible"]
                writer.count("windows without the question's answer", int(missed))
            yield columns, {**_described(question), "passage": number, **window._asdict()}


def _described(question: SquadQuestion) -> dict[str, Any]:
    answers = None if question.answers is None else [answer.text for answer in question.answers]
    return {"id": question.id, "question": question.text, "answers": answers}


def _training_answer(
    question: SquadQuestion, passage: SquadPassage, encoded: Encoded, writer: ExampleWriter
) -> Span | None:
    """Returns the first answer in the passage; None if there is none, Unusable if it teaches nothing."""
    if not encoded.ids:
        raise Unusable("empty passage")
    if not question.text.strip():
        raise Unusable("empty question")
    if question.impossible and question.answers:
        raise Unusable("answer to a question marked is_impossible")
    if question.impossible:
        return None
    if not question.answers:
        raise Unusable("no answer to a question that is not marked is_impossible")
    for answer in question.answers:
        location = locate(passage.text, answer)
        span = None if location is None else token_span(encoded, *location)
        if span is None:
            continue
        begin, end = location
        if answer.begin is None:
            writer.count("questions whose answer was found without an answer_start")
        elif begin != answer.begin:
            writer.count("questions with a wrong answer_start, repaired")
        if passage.text[begin:end] != answer.text:
            writer.count("questions whose answer has other white space than the passage")
        found = encoded.begins[span.first], encoded.ends[span.last]
        if found != location:
            writer.count("questions whose answer begins or ends within a token")
        return span
    raise Unusable("answer not in the passage")


def token_span(encoded: Encoded, begin: int, end: int) -> Span | None:
    """Returns the tokens with the characters `begin` to `end` (exclusive); None if there are none."""
    first = int(np.searchsorted(encoded.ends, begin, side="right"))
    last = int(np.searchsorted(encoded.begins, end, side="left")) - 1
    return Span(first, last) if first <= last else None


def inside(answer: Span, window: Window) -> bool:
    return window.first <= answer.first and answer.last < window.first + window.length


def training_columns(
    answer: Span | None, window: Window, question_len: int, segment_len: int = 0
) -> dict[str, int]:
    """Returns a window's targets: the answer's positions, or CLS if it does not hold all of it.

    `answer` is in tokens of the passage, None for no answer; for segment_len see `windows.window_room`.
    """
    if answer is None or not inside(answer, window):
        cls = windows_lib.cls_position(window, question_len, segment_len)
        return {"answer_first": cls, "answer_last": cls, "is_impossible": 1}
    first, last = (
        windows_lib.token_position(token - window.first, question_len, segment_len) for token in answer
    )
    return {"answer_first": first, "answer_last": last, "is_impossible": 0}
