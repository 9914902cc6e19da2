"""What to write instead of the names that people bring along from other libraries."""

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from xlnet_tf.errors import UserError

_Class = TypeVar("_Class", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])
_MODELS = {  # the ends of Hugging Face's and KerasHub's class names
    "ForSequenceClassification": "XLNetClassifier, or XLNetRegressor for numbers",
    "ForTokenClassification": "XLNetTokenClassifier",
    "ForMultipleChoice": "XLNetMultipleChoice",
    "ForQuestionAnswering": "XLNetQuestionAnswering",
    "ForQuestionAnsweringSimple": "XLNetQuestionAnswering",
    "LMHeadModel": "XLNetLanguageModel",
    "WithLMHead": "XLNetLanguageModel",
    "ForCausalLM": "XLNetLanguageModel",
    "ForMaskedLM": "XLNetLanguageModel",
    "ForPreTraining": "XLNetPretrainer",
    "TextClassifier": "XLNetClassifier",
    "PreTrainedModel": "XLNetEncoder",
    "MainLayer": "XLNetEncoder",
    "Model": "XLNetEncoder",
}
_PREFIXES = ("TFXLNet", "XLNet", "TFAutoModel", "AutoModel", "FlaxXLNet")
_CLASSES = {
    "AutoModel": "XLNetEncoder",
    "TFAutoModel": "XLNetEncoder",
    "AutoTokenizer": "XLNetTokenizer",
    "XLNetTokenizerFast": "XLNetTokenizer",
    "AutoConfig": "XLNetConfig",
    "XLNetPreprocessor": "XLNetTokenizer; models answer texts with model.answer(texts)",
    "XLNetTextClassifierPreprocessor": "XLNetTokenizer; models answer texts with model.answer(texts)",
    "Trainer": "model.fit(...), or the command xlnet-tf finetune",
    "TFTrainer": "model.fit(...), or the command xlnet-tf finetune",
    "TrainingArguments": "options of model.compile and model.fit, or flags of xlnet-tf finetune",
    "DataCollatorWithPadding": "batches_by_length",
    "DataCollatorForPermutationLanguageModeling": "the command xlnet-tf build pretraining",
    "pipeline": "XLNetClassifier.from_pretrained(NAME).answer(texts), or another model's",
}
_OPTIONS = {
    "return_tensors": "leave it out: results are NumPy arrays, which the models and TensorFlow take",
    "return_attention_mask": "leave it out: the result always has input_mask",
    "return_token_type_ids": "leave it out: the result always has input_type_ids",
    "text_pair": "write text_pairs",
    "from_pt": "leave it out: PyTorch's files are recognized",
    "from_tf": "leave it out: TensorFlow's files are recognized",
    "num_labels": "write labels=[...], the names of the classes",
    "id2label": "write labels=[...], the names of the classes",
    "label2id": "write labels=[...], the names of the classes",
    "problem_type": "write multi_label=True where a text may have several labels, XLNetRegressor for numbers",
    "revision": "write hf://OWNER/NAME@REVISION",
    "cache_dir": "set the environment variable HF_HOME",
    "local_files_only": "set the environment variable HF_HUB_OFFLINE=1",
    "token": "set the environment variable HF_TOKEN",
    "use_auth_token": "set the environment variable HF_TOKEN",
    "mem_len": "write memory_len, an option of XLNetEncoder and from_pretrained",
    "vocab_size": "write n_token, an option of XLNetConfig",
    "vocabulary_size": "write n_token, an option of XLNetConfig",
    "hidden_size": "write d_model, an option of XLNetConfig",
    "hidden_dim": "write d_model, an option of XLNetConfig",
    "num_hidden_layers": "write n_layer, an option of XLNetConfig",
    "num_layers": "write n_layer, an option of XLNetConfig",
    "num_attention_heads": "write n_head, an option of XLNetConfig",
    "num_heads": "write n_head, an option of XLNetConfig",
    "intermediate_dim": "write d_inner, an option of XLNetConfig",
    "intermediate_size": "write d_inner, an option of XLNetConfig",
    "activation": "write ff_activation, an option of XLNetConfig",
    "attn_type": "write attention_type, an option of XLNetEncoder and from_pretrained",
    "summary_type": "write summary, an option of the models with a head",
    "num_classes": "write labels=[...], the names of the classes",
    "preprocessor": "leave it out: models answer texts with model.answer(texts)",
    "do_sample": "leave it out: generate samples, and search finds the likeliest continuations",
    "num_beams": "call search, with beams=...",
    "beam_width": "call search, with beams=...",
    "num_return_sequences": "give the prompt as many times; search returns beams continuations of each",
    "max_length": "write max_new_tokens, an option of generate and search; the prompt's do not count",
    "min_length": "leave it out: a text ends after max_new_tokens, or with one of stop",
    "eos_token_id": "write stop=[...], an option of generate and search: pieces such as '<eop>'",
    "stop_token_ids": "write stop=[...], an option of generate and search: pieces such as '<eop>'",
    "pad_token_id": "leave it out: it is the tokenizer's",
    "repetition_penalty": "leave it out: top_k, top_p and temperature are what sampling has",
    "no_repeat_ngram_size": "leave it out: top_k, top_p and temperature are what sampling has",
    "config": "leave it out: it comes with the weights",
    "dtype": "leave it out, and set tf_keras.mixed_precision's global policy first",
    "torch_dtype": "leave it out, and set tf_keras.mixed_precision's global policy first",
    "device_map": "leave it out: TensorFlow places the model",
    "trust_remote_code": "leave it out: no code of a model is run",
    "use_fast": "leave it out: there is one tokenizer",
    "do_lower_case": "write cleaning=CleaningConfig(lower=...), of xlnet_tf.text.cleaning",
    "keep_accents": "write cleaning=CleaningConfig(keep_accents=...), of xlnet_tf.text.cleaning",
    "padding_side": "leave it out: texts are padded on the left, and either side gives the same answers",
    "add_special_tokens": "leave it out: a call always adds them; encode(text) adds none by default",
    "force_download": "leave it out: files of the cache are compared with their checksums",
    "output_attentions": "leave it out: xlnet_tf.models.attention_maps computes the probabilities",
    "output_hidden_states": "leave it out: XLNetEncoder returns encoder_outputs",
    "load_weights": "build the model from an XLNetConfig for random weights",
}

_FEATURES = {  # Hugging Face's and KerasHub's
    "input_ids": "input_word_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "input_type_ids",
    "token_ids": "input_word_ids",
    "padding_mask": "input_mask",
    "segment_ids": "input_type_ids",
}
_ATTRIBUTES = {
    "encode_plus": "call it: tokenizer(text)",
    "batch_encode_plus": "call it: tokenizer(texts)",
    "model_max_length": "give max_length where texts are encoded; any length works",
    "add_tokens": "train a vocabulary (xlnet-tf train-tokenizer): released models have no rows for more",
    "vocab": "call get_vocab()",
    "push_to_hub": "use save_pretrained, or the command xlnet-tf push",
    "generate": "load the weights as an XLNetLanguageModel",
    "config": "use model.encoder.config",
    "eval": "leave it out: only fit trains, with dropout",
    "to": "leave it out: TensorFlow places the model",
    "from_preset": "write from_pretrained(NAME), with one of xlnet_tf.released() or a folder",
    "from_pretrained": "use xlnet_tf.checkpoints.read_architecture(NAME_OR_FOLDER)",
    "presets": "call xlnet_tf.released()",
}


class NotHere:
    """A name that people look for in a class, which `__getattr__` of its objects does not answer."""

    def __set_name__(self, owner: type, name: str):
        self._name = name

    def __get__(self, instance: Any, owner: type):
        raise of_attribute(owner, self._name)


def of_attribute(owner: Any, name: str) -> AttributeError:
    """Returns the error for an attribute that an object or class lacks, with what to write if it is known."""
    hint = f": {_ATTRIBUTES[name]}" if name in _ATTRIBUTES else ""
    kind = owner if isinstance(owner, type) else type(owner)
    return AttributeError(f"{kind.__name__} has no {name!r}{hint}", name=name, obj=owner)


def of_name(name: str, known: Iterable[str] = ()) -> str | None:
    """Returns what to write instead of a name that this package lacks; None if nobody knows.

    Args:
        name: the wrong one.
        known: the right ones, of which one may be meant.
    """
    if instead := _CLASSES.get(name):
        return instead
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), None)
    if prefix and (instead := _MODELS.get(name.removeprefix(prefix))):
        return instead
    return next(iter(difflib.get_close_matches(name, list(known), 1, 0.85)), None)


def refuse(unknown: Collection[str], known: Collection[str]) -> None:
    """Raises a UserError for options that do not exist, given their names and those that do."""
    if guessed := next((name for name in sorted(unknown) if name in _OPTIONS), None):
        raise UserError(f"unknown option {guessed}: {_OPTIONS[guessed]}.")
    if unknown:
        names, expected = (", ".join(sorted(each)) for each in (unknown, known))
        raise UserError(f"unknown option {names}; expected some of {expected}.")


def refusing_unknown(kind: _Class) -> _Class:
    """Lets the constructor of a class refuse options that do not exist as `refuse` does."""
    kind.__init__ = refusing_options(kind.__init__)  # type: ignore[misc]
    return kind


def refusing_options(method: _Function) -> _Function:
    """Lets a method refuse options that do not exist as `refuse` does; its signature stays as it is."""
    known = [*inspect.signature(method).parameters][1:]

    @functools.wraps(method)
    def checked(self, *args, **options):
        refuse(options.keys() - {*known}, known)
        return method(self, *args, **options)

    return checked  # type: ignore[return-value]


def refuse_keras_3(name: str, values: Any) -> None:
    """Raises a UserError for an object of Keras 3, which a model of tf_keras would take and not train with.

    Args:
        name: what the object, or the dict or list of objects, was given as.
        values: anything.
    """
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
    """Raises a UserError for texts where a model expects features, and for the features of other libraries.

    Args:
        values: the input of a model's call, fit, evaluate or predict.
    """
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
