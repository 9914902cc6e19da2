"""How models are saved: as folders that every tool reads, and in tf_keras' own files."""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras

from xlnet_tf import files, folders, hints, task_registry
from xlnet_tf.checkpoints import save_model
from xlnet_tf.checkpoints.model_card import CARD_FILE, TOKENIZER_FILE, ModelCard, check_serving
from xlnet_tf.errors import UserError, short_repr
from xlnet_tf.layers.base import policy_restored
from xlnet_tf.models.loading import keyword_options
from xlnet_tf.text.tokenizer import XLNetTokenizer

_OF_KERAS = {"name", "dtype", "trainable", "dynamic", "autocast"}  # options of any Keras model


class ShapeFreeModel(tf_keras.Model):
    """A model that `build()` alone builds, so that `tf_keras.models.load_model` finds its variables in place.

    Tokenizer, card and folder are those of the weights that `from_pretrained` took, head included.
    """

    tokenizer: XLNetTokenizer | None = None
    card: ModelCard | None = None
    folder: str | None = None

    from_preset = hints.Absent()
    push_to_hub = hints.Absent()
    generate = hints.Absent()

    def __init__(self, **kwargs):
        known = keyword_options(type(self))
        hints.refuse(kwargs.keys() - known - _OF_KERAS, known)
        policy, dtype = tf_keras.mixed_precision.global_policy().name, kwargs.get("dtype")
        if getattr(dtype, "name", dtype) not in (None, policy):
            raise UserError(
                f"dtype is {short_repr(dtype)}, but layers compute as the policy of tf_keras says, "
                f"{policy}: leave dtype out, and set tf_keras.mixed_precision.set_global_policy first."
            )
        super().__init__(**kwargs)

    def save_pretrained(
        self, folder: str | os.PathLike, tokenizer: XLNetTokenizer | None = None, **options: Any
    ) -> None:
        """Writes the model to a folder, as `from_pretrained` and every command read it.

        A new model that was never called is written with its initial weights.

        Args:
            tokenizer: the texts' tokenizer; None: the model's own.
            **options: how it answers texts, where the defaults are not meant: seq_len, pair, threshold, ...
                (see the task's module in xlnet_tf.serving).

        Example:
            >>> model.save_pretrained("sentiment", tokenizer)
            >>> XLNetClassifier.from_pretrained("sentiment").answer("A fine film.")["label"]
            'positive'
        """
        tokenizer = tokenizer or self.tokenizer
        save_model(self, folder, tokenizer, self.current_card(tokenizer, **options))

    def current_card(self, tokenizer: XLNetTokenizer | None = None, **options: Any) -> ModelCard:
        """Returns the card of the model as it is; **options are as in `save_pretrained`."""
        card = ModelCard.of_model(self, tokenizer or self.tokenizer)
        if self.card:
            earlier = {
                name: getattr(self.card, name) for name in ("thresholds", "metrics", "origin", "serving")
            }
            earlier["cleaning"] = card.cleaning or self.card.cleaning
            card = dataclasses.replace(card, **earlier)
        if options and card.task in task_registry.tasks():
            known = keyword_options(task_registry.find(card.task).load("serving"))
            hints.refuse(set(options) - known, known)
        serving = card.serving
        if self.folder and not serving:
            serving = task_registry.load(task_registry.SERVING_OPTIONS)(self.folder)
        return dataclasses.replace(card, serving={**serving, **check_serving(options, "save_pretrained: ")})

    def _validate_compile(self, optimizer, metrics, **kwargs):
        """Refuses objects of Keras 3, which would train nothing; tf_keras' `compile` calls it first."""
        hints.refuse_keras_3("the optimizer", optimizer)
        hints.refuse_keras_3("metrics", metrics)
        super()._validate_compile(optimizer, metrics, **kwargs)

    @tf.autograph.experimental.do_not_convert  # no layer needs it, and fit would wait seconds for it
    def __call__(self, inputs, *args, **kwargs):
        hints.refuse_keras_3("the input", inputs)
        hints.refuse_inputs(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def fit(self, x=None, *args, **kwargs):
        hints.refuse_inputs(x)
        return super().fit(x, *args, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        hints.refuse_inputs(x)
        return super().evaluate(x, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        hints.refuse_inputs(x)
        return super().predict(x, *args, **kwargs)

    def save(self, filepath, *args, **kwargs):
        """As tf_keras' save; a new model that was never called is saved with its initial weights."""
        if not os.fspath(filepath).endswith((".keras", ".h5", ".hdf5")):
            folders.claim(filepath, folders.SAVED_MODEL, flag="folder")
        self._assert_weights_created()  # before tf_keras looks, and warns that there may be none
        return super().save(filepath, *args, **kwargs)

    def save_assets(self, folder: str) -> None:
        """Called by tf_keras for what a .keras file holds besides weights."""
        card = self.current_card()
        if self.tokenizer:
            files.write(f"{folder}/{TOKENIZER_FILE}", self.tokenizer.model_proto)
        card.write(folder)

    def load_assets(self, folder: str) -> None:
        """Called by tf_keras with the folder of what `save_assets` wrote; "" if nothing did."""
        if not folder:
            return
        if os.path.exists(f"{folder}/{CARD_FILE}"):
            self.card = ModelCard.read(folder)
        if os.path.exists(f"{folder}/{TOKENIZER_FILE}"):
            self.tokenizer = XLNetTokenizer.from_pretrained(folder)

    def _assert_weights_created(self):
        """Creates the weights if needed; tf_keras calls it where weights are read, and itself refuses."""
        if not self.built:
            self.build()

    def save_own_variables(self, store):
        self._assert_weights_created()
        super().save_own_variables(store)

    def load_own_variables(self, store):
        self._assert_weights_created()
        super().load_own_variables(store)

    def get_config(self):
        config = {"name": self.name, "trainable": self.trainable, "dtype": self.dtype_policy.name}
        changes = {
            path: layer.trainable
            for path, layer, parent in _layers(self)
            if layer.trainable != parent.trainable
        }
        return {**config, **({"trainable_layers": changes} if changes else {})}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        options = cls._options_from_config(config, custom_objects)
        dtype, trainable = options.pop("dtype", None), options.pop("trainable", True)
        changes = options.pop("trainable_layers", {})
        with policy_restored():
            if dtype:
                tf_keras.mixed_precision.set_global_policy(dtype)
            model = cls(**options)
        if not trainable:  # not otherwise, as a part may be frozen
            model.trainable = False
        for path, layer, _ in _layers(model):
            if path in changes:
                layer.trainable = changes[path]
        return model

    @classmethod
    def _options_from_config(cls, config: dict[str, Any], custom_objects: Any) -> dict[str, Any]:
        raise NotImplementedError

    def get_build_config(self):
        return {"input_shape": None}

    def build_from_config(self, config):
        self.build(config["input_shape"])

    def __repr__(self) -> str:
        objects = {name: getattr(self, name) for name in ("config", "encoder") if hasattr(self, name)}
        of_keras = {"trainable", "dtype", "trainable_layers"}
        arguments = {
            name: value for name, value in self.get_config().items() if name not in of_keras
        } | objects
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _layers(
    parent: tf_keras.layers.Layer, path: str = ""
) -> Iterator[tuple[str, tf_keras.layers.Layer, tf_keras.layers.Layer]]:
    """Yields the path, layer and parent of each layer of a model, parents first, but of no model in it."""
    for layer in parent._flatten_layers(recursive=False, include_self=False):
        if not isinstance(layer, ShapeFreeModel):
            yield f"{path}{layer.name}", layer, parent
            yield from _layers(layer, f"{path}{layer.name}/")
