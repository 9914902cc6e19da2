"""Answers texts with a graph of numbers alone: Python and numpy do the rest, as a SavedModel's graph does.

    texts -> ids, windows -> packed sequences -> the graph -> numbers -> answers

Each task adds its own in `xlnet_tf/tasks/`, in a file answering.py.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers import text_answers
from xlnet_tf.serving.answers.options import check_buckets
from xlnet_tf.serving.answers.signatures import MOST_TEXT_BYTES, SERVING_DEFAULT, TensorInfo
from xlnet_tf.serving.answers.text_answers import Row
from xlnet_tf.text.packing import pack
from xlnet_tf.text.special_tokens import PAD_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

# From input_word_ids, input_mask and input_type_ids, int32 [N, T], to a task's outputs by name, [N, ...]; see
# ExportableModel.graph_outputs.
Graph = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
Ids = Sequence[int] | np.ndarray


class Kinds(NamedTuple):
    """The inputs and outputs of a signature: their types, and the sizes of a row's axes, -1 if they vary."""

    inputs: Mapping[str, tuple[Any, ...]]
    outputs: Mapping[str, tuple[Any, ...]]


class TextAnswers:
    """What a task's answers are, whatever computes them: inputs, checks, and the form for people.

    A task's own subclass takes the options that its ExportableModel and its Answering share; the arguments
    before them, `served`, are a model or a graph, and the tokenizer.
    """

    # Options that are lengths of texts which go with a longer one, as the builders have them; short sequences
    # have room for half as many.
    LENGTHS: ClassVar[Mapping[str, int]] = {}
    IN_EACH_SEGMENT: ClassVar[bool] = False  # whether each segment repeats them, if a model reads in segments
    OF_EXAMPLES: ClassVar[Sequence[str]] = ()  # options that are settings of the examples of a run
    seq_len: int
    segment_len: int
    buckets: tuple[int, ...]
    labels: tuple[str, ...]
    multi_label: bool

    def example_rows(self) -> dict[str, Any]:
        """Returns one typical row of serving_default's inputs, for warm-up and as an example."""
        raise NotImplementedError

    def input_ranks(self) -> dict[str, int]:
        """Returns the inputs of serving_default: 1 for a text, 2 for a list of texts."""
        return _ranks(self.example_rows())

    @classmethod
    def ranks_with(cls, options: Mapping[str, Any]) -> dict[str, int]:
        """Returns the `input_ranks` of a model with these options, before it is there."""
        # An example needs no model, only what may be one of its options.
        return _ranks(cls.example_rows(types.SimpleNamespace(**{"pair": False, **options})))

    def batch_predictor(self) -> text_answers.BatchPredictor:
        """Returns the function that answers rows in Python."""
        raise NotImplementedError

    def ask(self, texts: Sequence[Any], inputs: Mapping[str, Any], batch_size: int) -> Any:
        """Answers texts for people; see XLNetHead.answer."""
        rows, many = text_answers.normalize_inputs(self.input_ranks(), texts, inputs)
        answers = text_answers.answer_texts(self, rows, batch_size)
        readable = [self.readable(row, answer) for row, answer in zip(rows, answers, strict=True)]
        return readable if many else readable[0]

    @staticmethod
    def without_padding(row: Row, answer: dict[str, Any]) -> dict[str, Any]:
        """Removes the padding from a row's answer, which fills it up to the longest one of its batch."""
        return answer

    def readable(self, row: Row, answer: dict[str, Any]) -> dict[str, Any]:
        """Returns an answer without padding, as Python users read it: by name."""
        return answer


def _ranks(rows: Mapping[str, Any]) -> dict[str, int]:
    return {name: 1 + isinstance(value, list) for name, value in rows.items()}


class Answering(TextAnswers):
    """Base of models that answer texts without TensorFlow; a subclass adds `serve` and `outputs`.

    Inputs, options and answers are those of the task's ExportableModel; labels are as in the model's card.
    """

    def __init__(
        self,
        graph: Graph,
        tokenizer: XLNetTokenizer,
        *,
        seq_len: int,
        buckets: Sequence[int] | None = None,
        labels: Sequence[str] = (),
        multi_label: bool = False,
        segment_len: int = 0,
    ):
        self.graph, self.tokenizer = graph, tokenizer
        self.seq_len, self.segment_len = seq_len, segment_len
        self.buckets = check_buckets(seq_len, buckets, segment_len)
        self.labels, self.multi_label = tuple(labels), multi_label

    def answer(self, *texts: Any, batch_size: int = 32, **inputs: Any) -> Any:
        """Answers texts; inputs and answers are those of XLNetHead.answer."""
        return self.ask(texts, inputs, batch_size)

    def batch_predictor(self):
        return self

    def __call__(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        answers = self.serve(**{name: [row[name] for row in rows] for name in self.input_ranks()})
        return [*map(self.without_padding, rows, text_answers.split_rows(answers))]

    @property
    def outputs(self) -> Mapping[str, TensorInfo]:
        """The outputs of `serve`, batch axis included, sorted by name."""
        kinds = {bytes: object, int: np.int32}
        return {
            name: TensorInfo(np.dtype(kinds.get(kind, kind)), 1 + len(sizes))
            for name, (kind, *sizes) in sorted(self.output_kinds().items())
        }

    def signatures(self) -> dict[str, Kinds]:
        inputs = {name: (bytes, *[-1] * (rank - 1)) for name, rank in self.input_ranks().items()}
        return {SERVING_DEFAULT: Kinds(inputs, self.output_kinds())}

    def run(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Answers rows, at least one, of a signature; texts come and go as bytes.

        Raises UserError if a text is too long, or the rows cannot be answered together.
        """
        del name  # there is one
        return self.serve(**{name: _texts(name, values) for name, values in inputs.items()})

    def output_kinds(self) -> dict[str, tuple[Any, ...]]:
        """Returns the outputs of `serve`: their types, and the sizes of a row's axes, -1 if they vary."""
        raise NotImplementedError

    def serve(self, **inputs: Sequence[Any]) -> dict[str, np.ndarray]:
        """Answers rows, given as columns of texts or lists of texts; strings come out as bytes."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        ids, lengths = self.tokenizer.encode_batch(texts)
        return np.split(ids, np.cumsum(lengths)[:-1]) if len(texts) else []

    def pack(self, rows: Sequence[tuple[Ids, Ids | None]], padding: str = "left") -> dict[str, np.ndarray]:
        """Packs texts or pairs as in training, cut to seq_len and padded to a bucket; returns [N, T]."""
        longest = max(len(a) + 2 if b is None else len(a) + len(b) + 3 for a, b in rows)
        length = next((bucket for bucket in self.buckets if longest <= bucket), self.seq_len)
        return features(pack(a, b, seq_len=length, padding=padding) for a, b in rows)


def features(packed) -> dict[str, np.ndarray]:
    """Returns the graph's inputs, [N, T] int32, for packed sequences of one length."""
    ids, segments = zip(*packed, strict=True)
    ids = np.stack(ids)
    return {
        "input_word_ids": ids,
        "input_mask": (ids != PAD_ID).astype(np.int32),
        "input_type_ids": np.stack(segments).astype(np.int32),
    }


def _texts(name: str, values: np.ndarray) -> Any:
    """Returns texts, or lists of texts, of bytes; what is not UTF-8 in them is replaced, as in a graph."""
    if any(len(text) > MOST_TEXT_BYTES for text in values.flat):
        raise UserError(f"{name} has a text of more than {MOST_TEXT_BYTES} bytes")
    return np.vectorize(lambda text: text.decode(errors="replace"), otypes=[object])(values).tolist()


def in_chunks(
    function: Callable[[int, int], dict[str, np.ndarray]], count: int, most: int
) -> dict[str, np.ndarray]:
    """Joins the results of function(begin, end) for the parts of a list of `count`, at least one."""
    parts = [function(begin, min(begin + most, count)) for begin in range(0, max(count, 1), most)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def as_bytes(texts: Sequence[Any]) -> np.ndarray:
    """Returns texts, or lists of equally many texts, as an array of bytes."""
    return np.vectorize(str.encode, otypes=[object])(np.array([*texts], object))
