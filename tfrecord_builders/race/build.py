"""Builds examples of multiple choice, RACE's or your own: one record holds a sequence for each option."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tfrecord_builders.common import example_builder
from tfrecord_builders.common.example_builder import Example, ExampleOptions, Split, build_sets, encoded
from tfrecord_builders.common.tables import SOURCES
from tfrecord_builders.race.questions import UNKNOWN, RaceColumns, RaceQuestion, read_questions
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.records.layout import Column
from xlnet_tf.text.inputs import join_option
from xlnet_tf.text.marks import warn_of_dropped_marks
from xlnet_tf.text.packing import PAD_SEGMENT, Packed, pack
from xlnet_tf.text.special_tokens import PAD_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

TASK = "choice"

_NUM_SPECIAL = 3  # SEP, SEP and CLS
_FILES = f"questions of the train split: folders of RACE's .txt files, or tables ({SOURCES})"
_LIKE_TRAIN = "questions of the {} split, in a form of --train"


@dataclasses.dataclass(frozen=True)
class RaceOptions(ExampleOptions):
    """What to build; each field is a flag."""

    train: Sequence[str] = option(_FILES, (), group="data")
    dev: Sequence[str] = option(_LIKE_TRAIN.format("dev"), (), group="data")
    test: Sequence[str] = option(_LIKE_TRAIN.format("test"), (), group="data")
    seq_len: int = option("tokens of a sequence", 512, least=5, group="examples")
    max_qa_len: int = option("most tokens of a question with an option", 128, least=1)
    context_column: str = option("column of the text to read; empty: there is none", "context")
    question_column: str = option("column of the question; empty: there is none", "question", group="data")
    options_column: Sequence[str] = option(
        "column of the options, a list; or one column for each option", ("options",), group="data"
    )
    answer_column: str = option("column of the answer, a letter or a number from 0", "answer", group="data")
    id_column: str = option("column of the question's id, if any", "id")

    def check(self) -> None:
        super().check()
        self.check_room("max_qa_len", _NUM_SPECIAL, "some context")


def build_race(options: RaceOptions, progress: bool = False) -> dict[str, ExampleSet]:
    """Builds the splits: `label` int32, the right option or -1, and a side file of questions and options."""
    options.check()
    tokenizer = options.load_tokenizer()
    columns = options.columns_of(RaceColumns)
    inputs = {split: _read(getattr(options, split), columns) for split in options.splits}
    if options.dev_fraction:
        questions, skipped = inputs["train"]
        source = ",".join(options.train)
        train, dev = example_builder.hold_out(
            questions, lambda each: each.context or each.question, options.dev_fraction, source
        )
        inputs |= {"train": (train, skipped), "dev": (dev, [])}
    for question in inputs.get("train", ([], []))[0]:
        if question.answer == UNKNOWN:
            raise UserError(
                f"{question.location}: no answer, expected one for each training question: answer it or "
                "remove it, or name the column of the answers with --answer_column"
            )
    asked = [question for questions, _ in inputs.values() for question in questions]
    num_choices = max(len(question.options) for question in asked)
    texts = ("\n".join([question.context, question.question, *question.options]) for question in asked)
    warn_of_dropped_marks(texts, options.cleaning)

    def read(name: str) -> Split[RaceQuestion]:
        questions, skipped = inputs[name]
        answered = all(question.answer != UNKNOWN for question in questions)
        return Split(
            questions,
            len(questions),
            [Column("label", "int32", None)],
            {"num_choices": num_choices, "max_qa_len": options.max_qa_len, "answered": answered},
            functools.partial(_examples, options, tokenizer, num_choices),
            sequences=num_choices,
            skipped=skipped,
        )

    return build_sets(TASK, options, tokenizer, options.built, read, "questions", progress)


def _read(paths: Sequence[str], columns: RaceColumns) -> tuple[list[RaceQuestion], list[tuple[str, str]]]:
    """Returns the questions of a split, and reason and location of skipped ones."""
    skipped: list[tuple[str, str]] = []
    questions = [
        question
        for path in paths
        for question in read_questions(path, lambda *left_out: skipped.append(left_out), columns)
    ]
    if not questions:
        raise UserError(f"no questions in {', '.join(paths)} ({len(skipped)} skipped): check the files")
    return questions, skipped


def _examples(
    options: RaceOptions,
    tokenizer: XLNetTokenizer,
    num_choices: int,
    questions: Iterable[RaceQuestion],
    writer: ExampleWriter,
) -> Iterator[Example]:
    """Yields columns and the side file's line of each question."""
    seq_len, max_qa_len = options.seq_len, options.max_qa_len
    lengths = []
    for question, (context, *answers) in encoded(questions, _texts, tokenizer):
        longest = max(map(len, answers))
        room = seq_len - _NUM_SPECIAL - min(longest, max_qa_len)
        writer.count("questions with their text cut", len(context) > room)
        writer.count("questions with an option cut", longest > max_qa_len)
        lengths.append(len(context) + longest)
        if len(answers) < num_choices:
            writer.count(f"questions with fewer than {num_choices} options")
        columns = option_sequences(context, answers, seq_len, max_qa_len, num_choices)
        yield (
            {**columns, "label": question.answer},
            {
                "id": question.id,
                "level": question.level,
                "question": question.question,
                "options": question.options,
            },
        )
    writer.count_lengths("pieces of a text and an option", lengths)


def _texts(question: RaceQuestion) -> list[str]:
    return [question.context, *(join_option(question.question, option) for option in question.options)]


def option_sequences(
    context: np.ndarray, answers: Sequence[np.ndarray], seq_len: int, max_qa_len: int, num_choices: int = 0
) -> dict[str, np.ndarray]:
    """Packs a question: one sequence for each of its C options, each with that option alone.

    The last `max_qa_len` pieces of question and option are kept; the context is cut at its end. Up to
    `num_choices` sequences are padding. Returns input_ids and segment_ids [C * T], T = seq_len.

    Source: run_race.py of the original, whose shared list leaves the previous options in every sequence.
    """
    kept = [answer[-max_qa_len:] for answer in answers]
    sequences = [
        pack(context[: seq_len - _NUM_SPECIAL - len(answer)], answer, seq_len=seq_len) for answer in kept
    ]
    none = Packed(np.full(seq_len, PAD_ID, np.int32), np.full(seq_len, PAD_SEGMENT, np.uint8))
    sequences += [none] * (num_choices - len(sequences))
    return {
        "input_ids": np.concatenate([sequence.input_ids for sequence in sequences]),
        "segment_ids": np.concatenate([sequence.segment_ids for sequence in sequences]),
    }
