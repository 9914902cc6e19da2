"""Shared by all heads: an encoder that reads the text, and layers with the names of checkpoints/names.py."""

import copy
import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging
from typing_extensions import Self

from xlnet_tf import hints, task_registry
from xlnet_tf.checkpoints import names
from xlnet_tf.errors import UserError, short_repr
from xlnet_tf.layers.base import DropoutSeed, fold_in, normal, step_seed
from xlnet_tf.layers.summary import SequenceSummary
from xlnet_tf.models import compiling
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.loading import Head, Pretrained, label_list
from xlnet_tf.models.reading import encode_long
from xlnet_tf.models.saving import ShapeFreeModel

_MEASURED = ("temperature", "alert", "threshold")  # measured options, among those for answering texts


class EncoderModel(ShapeFreeModel):
    """An encoder, the body, with what a subclass adds to it."""

    _compiled_with: Mapping[str, Any] = types.MappingProxyType({})

    def __init__(self, encoder: XLNetEncoder, **kwargs):
        if not isinstance(encoder, XLNetEncoder):
            raise UserError(
                f"the encoder is {short_repr(encoder)}; expected an XLNetEncoder, as XLNetEncoder(config)."
            )
        super().__init__(**kwargs)
        self.encoder = encoder

    def build(self, input_shape=None):
        if not self.encoder.built:
            self.encoder.build()
        self.build_head(self.encoder.config.d_model)
        self.built = True

    def build_head(self, d_model: int):
        """Creates the variables of the head, under the names of checkpoints/names.py."""
        raise NotImplementedError

    def head_outputs(self) -> compiling.Outputs:
        """Returns what the outputs are (see models/compiling.py) for `compile`, by name if there are several.

        None means unknown: losses and metrics are left unchanged.
        """
        return None

    def compile(
        self,
        optimizer="rmsprop",
        loss=None,
        metrics=None,
        loss_weights=None,
        weighted_metrics=None,
        *args,
        **kwargs,
    ):
        """As tf_keras' compile, for outputs that are logits: see `compiling.for_logits`."""
        hints.refuse_keras_3("the loss", loss)
        given = {"loss": loss, "metrics": metrics, "weighted_metrics": weighted_metrics}
        outputs = self.head_outputs()
        given = {name: compiling.for_logits(name, value, outputs) for name, value in given.items()}
        super().compile(optimizer, *args, loss_weights=loss_weights, **given, **kwargs)
        self._compiled_with = types.MappingProxyType(given)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        """As tf_keras' compute_loss, for `fit` and `evaluate`: see `compiling.check_labels`."""
        for name, value in self._compiled_with.items():
            compiling.check_labels(name, value, self.head_outputs(), y, y_pred)
        return super().compute_loss(x, y, y_pred, sample_weight)

    def compile_from_config(self, config):
        """Called by tf_keras with the arguments of `compile` that a .keras file holds."""
        try:
            self.compile(**tf_keras.saving.deserialize_keras_object(config))
        except UserError as error:  # earlier versions took it
            logging.warning("the saved model is not compiled, call compile: %s", error)
            return
        if self.built and isinstance(self.optimizer, tf_keras.optimizers.Optimizer):
            self.optimizer.build(self.trainable_variables)

    def get_config(self):
        return {"encoder": tf_keras.layers.serialize(self.encoder), **super().get_config()}

    @classmethod
    def _options_from_config(cls, config, custom_objects):
        encoder = dict(config["encoder"])
        if name := encoder.get("registered_name"):  # where tf_keras loads .h5 files, it looks at class_name
            encoder["class_name"] = name
        return {**config, "encoder": tf_keras.layers.deserialize(encoder, custom_objects)}


class XLNetHead(EncoderModel):
    """An encoder, to which a subclass adds what its task needs.

    Args:
        segment_len: tokens of the segments in which texts are read; 0 reads them at once.
        memory_gradient: segments that gradients flow back through the memory (see encode_long).
    """

    def __init__(self, encoder: XLNetEncoder, *, segment_len: int = 0, memory_gradient: int = 0, **kwargs):
        super().__init__(encoder, **kwargs)
        self.segment_len = segment_len
        self.memory_gradient = memory_gradient

    @classmethod
    def load(cls, source: Pretrained, head: Head, options: Mapping[str, Any], *arguments, **stored) -> Self:
        """Builds the model of a checkpoint, with its head or a new one, and loads its weights.

        `stored` are options that the checkpoint has, where the user's `options` give none.
        """
        encoder_options, own_options = source.options(options, XLNetEncoder, cls)
        encoder = XLNetEncoder(source.config, **encoder_options)
        model = cls(encoder, *arguments, **{**stored, **own_options})
        source.load_into(model, head)
        return model

    @property
    def trainable_weights(self):
        """Excludes the query stream's embedding, which no head reads: it would only decay."""
        unread = getattr(self.encoder, "mask_embedding", None)
        return [weight for weight in super().trainable_weights if weight is not unread]

    def fit(self, x=None, y=None, *args, **kwargs):
        """As tf_keras' fit; the answers may be a list of numbers as well."""
        if isinstance(kwargs.get("validation_data"), (tuple, list)):
            inputs, *answers = kwargs["validation_data"]
            kwargs["validation_data"] = (inputs, *map(_as_array, answers))
        if "sample_weight" in kwargs:
            kwargs["sample_weight"] = _as_array(kwargs["sample_weight"])
        serving = self.current_card().serving if self.card else {}
        try:
            return super().fit(x, _as_array(y), *args, **kwargs)
        finally:
            if self.card:  # the measured values are of other weights
                unmeasured = {name: value for name, value in serving.items() if name not in _MEASURED}
                self.card = dataclasses.replace(self.card, thresholds={}, metrics={}, serving=unmeasured)
                self.folder = None
                self.__dict__.pop("_answering", None)

    def evaluate(self, x=None, y=None, *args, **kwargs):
        """As tf_keras' evaluate; the answers may be a list of numbers as well."""
        if "sample_weight" in kwargs:
            kwargs["sample_weight"] = _as_array(kwargs["sample_weight"])
        return super().evaluate(x, _as_array(y), *args, **kwargs)

    def answer(self, *texts: Any, batch_size: int = 32, **inputs: Any) -> Any:
        """Answers texts, as the exported model does, with names instead of numbers.

        Args:
            *texts: the model's inputs, in their order, each a text or a list of texts: text, or text_a and
                text_b, for classification and regression; text for tagging; question and context;
                context, question and options; query and candidates, of which options and candidates are
                lists of texts. A text has at most 512 KiB.
            **inputs: the same by name.

        Returns:
            A dict for each row, or one for a single row: label, score and probabilities by label; labels and
            probabilities, where a text may have several; value; entities; answer, start, end, score and
            answers; answer, option and probabilities; scores and order.

        Example:
            >>> XLNetClassifier.from_pretrained("runs/reviews").answer(["A fine film."])
            [{'label': 'positive', 'score': 0.98, 'probabilities': {'negative': 0.02, 'positive': 0.98}}]
        """
        self._warn_of_new_head()
        pair = len(texts) + len(inputs) == 2
        settings = copy.deepcopy((self.card, self.get_config()))  # which may be changed in place
        key = (pair, id(self.tokenizer), self.folder, settings)
        if vars(self).get("_answering", (None,))[0] != key:  # not among what tf_keras tracks and saves
            scopes = (names.head_scope(names.canonical(variable.name)) for variable in self.variables)
            task = next(filter(None, map(task_registry.entry_for_scope, scopes)))
            self.__dict__["_answering"] = key, task.load("serving").of_model(self, pair=pair)
        return vars(self)["_answering"][1].ask(texts, inputs, batch_size)

    def _warn_of_new_head(self):
        """Warns once if the head still has its initial random weights."""
        kernel, begun = self.__dict__.pop("_new_head", (None, None))
        if kernel is not None and np.array_equal(kernel.numpy(), begun):
            logging.warning(
                "the head of this %s is new and has random weights: its answers mean nothing before it is "
                "trained (model.fit, or xlnet-tf finetune)",
                type(self).__name__,
            )

    def encode(self, features: Mapping[str, Any], training: bool | None):
        """Reads the text; returns its vectors ([B, T, D], or [B, Q, D] of output_positions) and a seed."""
        seed = step_seed(features, training)
        if seed is not None:
            features = {**features, "dropout_seed": seed}
        vectors = encode_long(self.encoder, features, self.segment_len, training, self.memory_gradient)
        return vectors, fold_in(seed, DropoutSeed.HEAD)

    def get_config(self):
        own = {"segment_len": self.segment_len, "memory_gradient": self.memory_gradient}
        return {**super().get_config(), **own}


def _as_array(values: Any) -> Any:
    """Returns a list of numbers as an array: tf_keras would take a list for several outputs."""
    first = values
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    wrong = False
    if isinstance(values, (list, tuple)) and isinstance(first, (bool, int, float, str, np.number)):
        try:
            values = np.array(values)
        except ValueError:
            raise UserError(
                "the lists of y differ in length; expected lists of one length, padded."
            ) from None
        wrong = values.dtype.kind not in "biuf"
    elif isinstance(values, np.ndarray) or hasattr(values, "iloc"):  # a column of pandas
        first = next(iter(np.ravel(values)[:1].tolist()), None)
        wrong = isinstance(first, str)
    if wrong:
        raise UserError(
            f"y has {short_repr(first)}; expected numbers: for labels by name, "
            "[model.labels.index(label) for label in y]."
        )
    return values


class PooledHead(XLNetHead):
    """A dense layer of width `outputs` on one vector for the text, named as in checkpoints/names.py."""

    def __init__(
        self,
        encoder: XLNetEncoder,
        head_scope: str,
        outputs: int,
        *,
        summary: str = "last",
        projection: bool = True,
        pool_padding: bool = False,
        **kwargs,
    ):
        super().__init__(encoder, **kwargs)
        self.head_scope = head_scope
        self.pooling = SequenceSummary(
            encoder.config,
            encoder.initializer_range,
            method=summary,
            projection=projection,
            dropout=encoder.dropout,
            attention_dropout=encoder.attention_dropout,
            pool_padding=pool_padding,
            name="summary",
        )
        self.dense = logits_layer(outputs, encoder)

    @classmethod
    def load(cls, source: Pretrained, head: Head, options: Mapping[str, Any], *arguments, **stored) -> Self:
        stored = {**source.pooling_options(head), **stored}
        return super().load(source, head, options, *arguments, **stored)

    def build_head(self, d_model: int):
        with tf.name_scope(self.pooling.name):
            self.pooling.build([None, None, d_model])
        build_layer(self.dense, [None, d_model], self.head_scope)

    def pooled_logits(self, features: Mapping[str, Any], training: bool | None) -> tf.Tensor:
        """Returns the dense layer's result, [B, C] float32."""
        mask = features.get("input_mask")
        positions = self.pooling.positions(features["input_word_ids"], mask)
        if positions is not None:
            features, mask = {**features, "output_positions": positions}, None  # one token is left
        sequence_output, seed = self.encode(features, training)
        pooled = self.pooling(sequence_output, mask, seed=seed)
        return self.dense(tf.cast(pooled, tf.float32))

    def get_config(self):
        return {
            **super().get_config(),
            "summary": self.pooling.method,
            "projection": self.pooling.projection is not None,
            "pool_padding": self.pooling.pool_padding,
        }


def class_names(labels: Sequence[str] | None, num_labels: int) -> list[str]:
    """Returns the labels of a head's classes, by default their numbers; raises UserError if some lack."""
    names = [*label_list(map(str, range(num_labels)) if labels is None else labels)]
    if len(names) != num_labels:
        raise UserError(f"there are {len(names)} labels for {num_labels} classes.")
    return names


def logits_layer(outputs: int, encoder: XLNetEncoder, use_bias: bool = True) -> tf_keras.layers.Dense:
    """Returns the last layer of a head, which computes in float32 under any policy."""
    return tf_keras.layers.Dense(
        outputs,
        use_bias=use_bias,
        kernel_initializer=normal(encoder.initializer_range),
        dtype=tf.float32,
        name="logits",
    )


def build_layer(layer: tf_keras.layers.Layer, input_shape: Sequence[int | None], scope: str) -> None:
    """Creates a layer's variables under `scope`, such as "span/start", and the layer's own name."""
    with tf.name_scope(scope), tf.name_scope(layer.name):
        layer.build(input_shape)
