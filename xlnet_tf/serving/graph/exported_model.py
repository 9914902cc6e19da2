"""The contents of a SavedModel: a model, its tokenizer, and functions from texts to answers."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tf_keras
from typing_extensions import Self

from xlnet_tf import hints
from xlnet_tf.checkpoints import names
from xlnet_tf.checkpoints.model_card import ModelCard
from xlnet_tf.errors import UserError
from xlnet_tf.layers import kernels
from xlnet_tf.model_folders import OPENVINO_MODEL
from xlnet_tf.models.head import PooledHead, XLNetHead
from xlnet_tf.models.loading import keyword_options
from xlnet_tf.models.reading import TOKEN_FEATURES
from xlnet_tf.serving.answers.answering import TextAnswers
from xlnet_tf.serving.answers.candidates import CandidateAnswers
from xlnet_tf.serving.answers.options import check_buckets, default_seq_len, exact_buckets
from xlnet_tf.serving.answers.signatures import MOST_TEXT_BYTES, SERVING_DEFAULT
from xlnet_tf.serving.graph import graph_predictor
from xlnet_tf.serving.graph.inputs import (
    Signature,
    Texts,
    check_rows,
    parse_examples,
    serialized_example,
    signature,
)
from xlnet_tf.serving.graph.int8 import Int8Weights
from xlnet_tf.text.graph import packing as graph_packing
from xlnet_tf.text.graph.tokenizer import GraphTokenizer
from xlnet_tf.text.packing import PAD_SEGMENT
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.vocabulary import TOKENIZER_FILE
from xlnet_tf.text.windows import NUM_SPECIAL

TOKENS, EXAMPLES = "tokens", "examples"
CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"
MAIN_GRAPH = OPENVINO_MODEL.removesuffix(".xml")

# From tensors by name to tensors by name.
GraphFunction = Callable[..., Mapping[str, tf.Tensor]]


class ExportableModel(TextAnswers, tf.Module):
    """Base of exported models: texts in, answers out, all of it in one graph.

    A subclass says which strings it reads (`example_rows`), and how it answers them (`serve`) and token ids
    (`serve_tokens`). All inputs and outputs have the batch B, of any size, as their first axis, so that a
    server can batch requests and split the results. Texts have at most 512 KiB.

    Args:
        model: built, its weights loaded; of the dtype to serve in.
        seq_len: T, most tokens of a sequence.
        buckets: ascending lengths; a batch is padded to the first that holds its longest sequence, or else to
            `seq_len`. None: 32, 64, 128, ... A model that reads in segments has none.
        int8: whether to store the weights as 8-bit integers (see Int8Weights).
        keep_position_keys: whether to project the distances once; not if the weights may change.

    Attributes:
        METHODS: TensorFlow Serving's methods for the signatures that do not `predict`.
        card: the model's card, for model.json.
        texts: the tokenizer in graph.
        answer: `serve`, as one graph that checks that all inputs have equally many rows.
    """

    METHODS: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        model: tf_keras.Model,
        tokenizer: XLNetTokenizer,
        *,
        seq_len: int,
        buckets: Sequence[int] | None = None,
        int8: bool = False,
        keep_position_keys: bool = True,
    ):
        super().__init__()
        self.vocab_size = model.encoder.config.n_token
        if tokenizer.vocab_size != self.vocab_size:
            raise UserError(
                f"the tokenizer has {tokenizer.vocab_size} pieces, the model {self.vocab_size}: export the "
                "model with the tokenizer that it was trained with"
            )
        self.tokenizer = tokenizer
        self.card = ModelCard.of_model(model, tokenizer)
        self.texts = GraphTokenizer(tokenizer)
        self.seq_len, self.segment_len = seq_len, getattr(model, "segment_len", 0)
        self.buckets = check_buckets(seq_len, buckets, self.segment_len)
        self.labels = tuple(getattr(model, "labels", ()))
        self.multi_label = getattr(model, "multi_label", False)
        self.int8 = Int8Weights(model) if int8 else None
        stored = self.int8.tables if int8 else {}
        weights = {names.canonical(variable.name): variable for variable in model.variables}
        self.weights = {name: variable for name, variable in weights.items() if name not in stored}
        # Functions, so that the model, with Keras' own functions, does not become part of the SavedModel.
        self._model = lambda: model
        # Traced anew for each kind of kernels.
        self._forward = tf.function(
            lambda features, assumed: self.use(lambda model: self.forward(model, features)), autograph=False
        )
        # The same for all requests; an eighth of the work for one of 128 tokens.
        self.position_keys = None
        if keep_position_keys and not self.segment_len and not int8:
            self.position_keys = tf.Variable(
                model.encoder.position_keys(seq_len), trainable=False, name="position_keys"
            )
        # One graph, however many signatures lead to it.
        self.answer = tf.function(lambda **inputs: self.serve(**self.check_inputs(inputs)), autograph=False)

    @classmethod
    def of_model(cls, model: XLNetHead, *, pair: bool = False) -> Self:
        """Returns the served form of a built model with its tokenizer, to answer texts in Python.

        `pair` says whether texts are pairs, if the model's card does not.
        """
        if model.tokenizer is None:
            where = f" ({model.folder} has no {TOKENIZER_FILE})" if model.folder else ""
            raise UserError(
                f"the model has no tokenizer{where}: set model.tokenizer, an XLNetTokenizer, such as that of "
                'the model that it was trained from: XLNetTokenizer.from_pretrained("hf://xlnet/'
                'xlnet-base-cased").'
            )
        options = dict(model.current_card().serving)
        if "pair" in cls.OF_EXAMPLES:
            options.setdefault("pair", pair)
        options = cls.complete_options(options, model.segment_len)
        # Position keys would be those of the weights as they are now, and the model may be trained.
        buckets = exact_buckets(options["seq_len"], model.segment_len)
        return cls(model, model.tokenizer, **options | {"buckets": buckets, "keep_position_keys": False})

    @classmethod
    def complete_options(cls, options: Mapping[str, Any], segment_len: int) -> dict[str, Any]:
        """Completes options with default lengths; refuses unknown ones."""
        known = keyword_options(cls)
        hints.refuse(set(options) - known, known)
        options = {"seq_len": default_seq_len(segment_len), **options}
        tokens = options["seq_len"]
        if cls.IN_EACH_SEGMENT and 0 < segment_len <= NUM_SPECIAL + max(cls.LENGTHS.values()):
            tokens = segment_len  # which has no room for the usual length and another text
        half = max(1, (tokens - NUM_SPECIAL) // 2)
        return {name: min(length, half) for name, length in cls.LENGTHS.items()} | options

    @classmethod
    def options_of_run(cls, task) -> dict[str, Any]:
        """Returns the options that a fine-tuned run is served with, given its FinetuningTask."""
        examples = task.example_set
        return {"seq_len": examples.seq_len, **{name: examples.settings[name] for name in cls.OF_EXAMPLES}}

    def input_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the inputs of serving_default: [B] strings, or [B, C] where a row has a list."""
        return {name: tf.TensorSpec([None] * rank, tf.string) for name, rank in self.input_ranks().items()}

    def batch_predictor(self) -> graph_predictor.GraphPredictor:
        """Returns the function that answers rows in Python; it is traced once."""
        if "_rows" not in vars(self):
            predictor = graph_predictor.batch_predictor(self.answer, self.input_specs(), self.without_padding)
            vars(self)["_rows"] = predictor  # not exported
        return vars(self)["_rows"]

    @staticmethod
    def check_inputs(inputs: dict[str, Texts]) -> dict[str, Texts]:
        """Adds checks that all inputs have equally many rows and no text exceeds MOST_TEXT_BYTES."""
        checks = [
            tf.debugging.assert_less_equal(
                tf.strings.length(value.flat_values if isinstance(value, tf.RaggedTensor) else value),
                MOST_TEXT_BYTES,
                f"{name} has a text of more than {MOST_TEXT_BYTES} bytes",
            )
            for name, value in inputs.items()
        ]
        with tf.control_dependencies(checks):
            return check_rows(inputs)

    def serve(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers texts; the inputs are those of `input_specs`."""
        raise NotImplementedError

    def serve_tokens(self, features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Answers packed sequences: input_word_ids, input_mask, input_type_ids [B, T]."""
        raise NotImplementedError

    def graph_outputs(self, features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns numbers, float32 but for indices, that answers are made of, given packed sequences."""
        raise NotImplementedError

    def graph_functions(self) -> dict[str, tuple[GraphFunction, dict[str, tf.TensorSpec]]]:
        """Returns what is exported where there is no TensorFlow: functions of numbers with their inputs.

        MAIN_GRAPH is `graph_outputs` of sequences of any length up to seq_len; of a model that reads in
        segments, of seq_len. Those called FILE/PART become parts of one file.
        """
        tokens = tf.TensorSpec([None, self.seq_len if self.segment_len else None], tf.int32)
        specs = dict.fromkeys(TOKEN_FEATURES, tokens)
        return {MAIN_GRAPH: (lambda **features: self.graph_outputs(features), specs)}

    def forward(self, model: tf_keras.Model, features: Mapping[str, tf.Tensor]) -> Any:
        """Calls the model; for subclasses that want another of its methods."""
        return model(features, training=False)

    def run(self, features: Mapping[str, tf.Tensor]) -> Any:
        """Returns the model's outputs for packed sequences; one graph serves all signatures."""
        features = dict(features)
        if self.position_keys is not None:
            features["position_keys"] = tf.convert_to_tensor(self.position_keys)
        return self._forward(features, kernels.assumed())

    def use(self, function: Callable[[tf_keras.Model], Any]) -> Any:
        """Returns function(model), computed with the stored weights in inference mode.

        Pooling ignores the padding that a text gets here, whatever the model does in training.
        """
        model = self._model()
        pooling = model.pooling if isinstance(model, PooledHead) else None
        with (
            self.int8.in_place() if self.int8 else contextlib.nullcontext(),
            pooling.without_padding() if pooling else contextlib.nullcontext(),
        ):
            return function(model)

    def pack(
        self, ids_a: tf.RaggedTensor, ids_b: tf.RaggedTensor | None = None, *, padding: str = "left"
    ) -> dict[str, tf.Tensor]:
        """Packs texts as in training, cut to seq_len and padded to a bucket; returns features [N, T].

        ids_a and ids_b (of pairs) are piece ids [N, (pieces)].
        """
        lengths = ids_a.row_lengths() + 2 if ids_b is None else ids_a.row_lengths() + ids_b.row_lengths() + 3
        return graph_packing.pack(ids_a, ids_b, seq_len=self.padded_len(lengths), padding=padding)

    def padded_len(self, lengths: tf.Tensor) -> int | tf.Tensor:
        """Returns the tokens that sequences of `lengths` [N] are padded or cut to; static without buckets."""
        if len(self.buckets) == 1:
            return self.seq_len
        return graph_packing.bucket(tf.cast(lengths, tf.int32), self.buckets)

    def signatures(self) -> dict[str, Signature]:
        """Returns the functions to serve, by name."""
        specs = self.input_specs()
        example = tf.TensorSpec([None], tf.string)

        def answer_examples(examples):
            return self.answer(**parse_examples(examples, specs))

        tokens = tf.TensorSpec([None, None if len(self.buckets) > 1 else self.seq_len], tf.int32)
        return {
            SERVING_DEFAULT: signature(self.answer, **specs),
            EXAMPLES: signature(answer_examples, examples=example),
            TOKENS: signature(
                lambda **features: self.serve_tokens(self._check_tokens(features)),
                **dict.fromkeys(TOKEN_FEATURES, tokens),
            ),
        }

    def example_inputs(self) -> dict[str, dict[str, np.ndarray]]:
        """Returns inputs of one row, [1, ...], for each signature of this class."""
        row = self.example_rows()
        texts = {name: np.array([value], object) for name, value in row.items()}
        features = {
            name: values.numpy()
            for name, values in self.pack(self.texts.encode(["An example of a text."])).items()
        }
        return {
            SERVING_DEFAULT: texts,
            EXAMPLES: {"examples": np.array([serialized_example(row)], object)},
            TOKENS: features,
        }

    def _check_tokens(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids = features["input_word_ids"]
        length, most, last = tf.shape(ids)[1], self.seq_len, self.vocab_size - 1
        checks = [
            tf.debugging.assert_equal(
                tf.shape(value), tf.shape(ids), f"{name} has another shape than input_word_ids"
            )
            for name, value in features.items()
        ]
        for name, largest in (("input_mask", 1), ("input_type_ids", PAD_SEGMENT)):
            within = (features[name] >= 0) & (features[name] <= largest)
            checks.append(
                tf.debugging.Assert(tf.reduce_all(within), [f"{name} has others than 0 to {largest}"])
            )
        checks += [
            tf.debugging.assert_positive(length, "input_word_ids has no tokens"),
            tf.debugging.assert_less_equal(length, most, f"input_word_ids has more than {most} tokens"),
            tf.debugging.assert_non_negative(ids, "input_word_ids has negative ids"),
            tf.debugging.assert_less_equal(ids, last, f"input_word_ids has ids above {last}, the last piece"),
        ]
        with tf.control_dependencies(checks):
            return {name: tf.identity(value) for name, value in features.items()}


class CandidatesModule(CandidateAnswers, ExportableModel):
    """Base of models that score several texts of a row, each read with another text, as output SCORES."""

    SCORES: ClassVar[str]

    def forward(self, model, features):
        return model.pooled_logits(features, training=False)  # [B, 1]: each candidate is a text of its own

    def serve_tokens(self, features):
        return {self.SCORES: tf.squeeze(self.run(features), axis=-1)}

    def graph_outputs(self, features):
        return {"logits": tf.squeeze(self.run(features), axis=-1)}
