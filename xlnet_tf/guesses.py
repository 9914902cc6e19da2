"""What to write instead of the names that people bring along from other libraries."""

from collections.abc import Collection, Mapping
from typing import Any

from xlnet_tf.errors import UserError

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
    "mem_len": "write memory_len",
    "load_weights": "build the model from an XLNetConfig for random weights",
}


def of_name(name: str) -> str | None:
    """Returns what to write instead of a name that this package lacks; None if nobody knows."""
    if instead := _CLASSES.get(name):
        return instead
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), None)
    return _MODELS.get(name.removeprefix(prefix)) if prefix else None


def refuse(unknown: Collection[str], known: Collection[str]) -> None:
    """Raises a UserError for options that do not exist.

    Args:
        unknown: their names.
        known: names of the options that exist.
    """
    if guessed := next((name for name in sorted(unknown) if name in _OPTIONS), None):
        raise UserError(f"unknown option {guessed}: {_OPTIONS[guessed]}.")
    if unknown:
        names, expected = (", ".join(sorted(each)) for each in (unknown, known))
        raise UserError(f"unknown option {names}; expected some of {expected}.")


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
