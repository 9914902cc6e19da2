"""Suggests our names for those that users of Hugging Face try first; docs/migrate/ has the others."""

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from xlnet_tf.errors import UserError

_Class = TypeVar("_Class", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])
_PREFIX = re.compile("(TF|Flax)?(XLNet|AutoModel)")
_MODELS = {  # what follows the prefix in Hugging Face's class names
    "ForSequenceClassification": "XLNetClassifier, or XLNetRegressor for numbers",
    "ForTokenClassification": "XLNetTokenClassifier",
    "ForMultipleChoice": "XLNetMultipleChoice",
    "ForQuestionAnswering": "XLNetQuestionAnswering",
    "ForQuestionAnsweringSimple": "XLNetQuestionAnswering",
    "LMHeadModel": "XLNetLanguageModel",
    "ForCausalLM": "XLNetLanguageModel",
    "Model": "XLNetEncoder",
    "": "XLNetEncoder",
}
_CLASSES = {
    "AutoTokenizer": "XLNetTokenizer",
    "XLNetTokenizerFast": "XLNetTokenizer",
    "AutoConfig": "XLNetConfig",
    "Trainer": "model.fit(...), or the command xlnet-tf finetune",
    "TrainingArguments": "options of model.compile and model.fit, or flags of xlnet-tf finetune",
    "pipeline": "XLNetClassifier.from_pretrained(NAME).answer(texts), or another model's",
}
_OPTIONS = {
    "return_tensors": "leave it out: results are NumPy arrays, which the models and TensorFlow take",
    "num_labels": "write labels=[...], the names of the classes",
    "id2label": "write labels=[...], the names of the classes",
    "mem_len": "write memory_len, an option of XLNetEncoder and from_pretrained",
    "vocab_size": "write n_token, an option of XLNetConfig",
    "hidden_size": "write d_model, an option of XLNetConfig",
    "num_hidden_layers": "write n_layer, an option of XLNetConfig",
    "do_sample": "leave it out: generate samples, and search finds the likeliest continuations",
    "bad_words_ids": "write forbid=[...], the pieces that are not to be written",
    "num_beams": "call search, with beams=...",
    "max_length": "write max_new_tokens, an option of generate and search; the prompt's do not count",
}
_ATTRIBUTES = {
    "from_preset": "write from_pretrained(NAME), with one of xlnet_tf.released() or a folder",
    "from_pretrained": "use xlnet_tf.checkpoints.read_architecture(NAME_OR_FOLDER)",
    "encode_plus": "call it: tokenizer(text)",
    "push_to_hub": "use save_pretrained, or xlnet-tf convert-checkpoint MODEL --output=hf://OWNER/NAME",
    "generate": "load the weights as an XLNetLanguageModel",
}
_FEATURES = {  # Hugging Face's and KerasHub's
    "input_ids": "input_word_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "input_type_ids",
    "token_ids": "input_word_ids",
    "padding_mask": "input_mask",
    "segment_ids": "input_type_ids",
}


class Absent:
    """An attribute that this class lacks, but users of other libraries look for; it raises a hint."""

    def __set_name__(self, owner: type, name: str):
        self._name = name

    def __get__(self, instance: Any, owner: type):
        hint = f"{owner.__name__} has no {self._name!r}: {_ATTRIBUTES[self._name]}"
        raise AttributeError(hint, name=self._name, obj=owner)


def suggest_name(name: str, known: Iterable[str] = ()) -> str | None:
    """Returns what to write instead of a name that this package lacks; None if no name is similar."""
    prefix = _PREFIX.match(name)
    instead = _CLASSES.get(name) or (prefix and _MODELS.get(name[prefix.end() :]))
    return instead or next(iter(difflib.get_close_matches(name, [*known], 1, 0.85)), None)


def refuse(unknown: Collection[str], known: Collection[str]) -> None:
    """Raises UserError for unknown options, with a hint."""
    if hinted := next((name for name in sorted(unknown) if name in _OPTIONS), None):
        raise UserError(f"unknown option {hinted}: {_OPTIONS[hinted]}.")
    if unknown:
        names, expected = (", ".join(sorted(each)) for each in (unknown, known))
        near = [match for name in sorted(unknown) for match in difflib.get_close_matches(name, known, 1)]
        tip = f" (did you mean {', '.join(near)}?)" if near else ""
        raise UserError(f"unknown option {names}; expected some of {expected}{tip}.")


def refusing_unknown(kind: _Class) -> _Class:
    """Makes the constructor of a class check its options with `refuse`."""
    kind.__init__ = refusing_options(kind.__init__)  # type: ignore[misc]
    return kind


def refusing_options(method: _Function) -> _Function:
    """Makes a method check its options with `refuse`; its signature stays the same."""
    known = [*inspect.signature(method).parameters][1:]

    @functools.wraps(method)
    def checked(self, *args, **options):
        refuse(options.keys() - {*known}, known)
        return method(self, *args, **options)

    return checked  # type: ignore[return-value]


def refuse_keras_3(name: str, values: Any) -> None:
    """Raises UserError for a Keras 3 object, which tf_keras would accept but not train."""
    if isinstance(values, Mapping):
        values = list(values.values())
    for value in values if isinstance(values, list | tuple) else [values]:
        if type(value).__module__.partition(".")[0] in ("keras", "keras_core"):
            kind = type(value).__name__
            instead = "tf_keras.Input" if kind == "KerasTensor" else f"tf_keras' own {kind}"
            raise UserError(
                f"{name} is of Keras 3 ({type(value).__module__}.{kind}), whose objects do not work in "
                f"models of tf_keras: write {instead} (import tf_keras, not keras or tf.keras)."
            )


def refuse_inputs(values: Any) -> None:
    """Raises UserError for texts instead of features, and for features of other libraries."""
    first = values
    while isinstance(first, list | tuple | np.ndarray) and len(first):
        first = first[0]
    if isinstance(first, str | bytes):
        raise UserError(
            "a model computes with features, not texts: write model.answer(texts) for answers, and "
            "tokenizer(texts) for the features that calls, fit, evaluate and predict take."
        )
    if (
        isinstance(values, Mapping)
        and "input_word_ids" not in values
        and (found := values.keys() & _FEATURES)
    ):
        instead = ", ".join(f"{_FEATURES[name]} for {name}" for name in sorted(found))
        raise UserError(f"a model has no such features: write {instead}, or take those of tokenizer(texts).")
