"""XLNet on TensorFlow 2.

    from xlnet_tf import XLNetClassifier, XLNetTokenizer

    tokenizer = XLNetTokenizer.from_pretrained("xlnet_cased_L-12_H-768_A-12")
    model = XLNetClassifier.from_pretrained("xlnet_cased_L-12_H-768_A-12", labels=["negative", "positive"])
    model(tokenizer(["A fine film."]))  # logits; compile, fit, evaluate, predict and save are tf_keras' own

Importing this package is light: it loads neither TensorFlow nor Keras until a name that needs them is used,
so that processes that only build records stay small. It pins Keras to the legacy tf_keras, which must happen
before TensorFlow loads: Model Garden's layers inside a Keras 3 model would silently not be trained.
"""

import importlib
import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

_MODULES = {
    "UserError": "errors",
    "XLNetChoice": "models.multiple_choice",
    "XLNetClassifier": "models.classifier",
    "XLNetConfig": "config",
    "XLNetEncoder": "models.encoder",
    "XLNetLanguageModel": "generation.language_model",
    "XLNetPretrainer": "models.pretrainer",
    "XLNetRanker": "models.multiple_choice",
    "XLNetRegressor": "models.classifier",
    "XLNetSpan": "models.question_answering",
    "XLNetTagger": "models.token_classifier",
    "XLNetTokenizer": "text.tokenizer",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # found at once from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
