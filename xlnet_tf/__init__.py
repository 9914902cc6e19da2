"""XLNet on TensorFlow 2.

    from xlnet_tf import XLNetClassifier, XLNetTokenizer

    tokenizer = XLNetTokenizer.from_pretrained("xlnet_cased_L-12_H-768_A-12")
    model = XLNetClassifier.from_pretrained("xlnet_cased_L-12_H-768_A-12", labels=["negative", "positive"])
    model(tokenizer(["A fine film."]))  # logits; compile, fit, evaluate, predict and save are tf_keras' own

Importing this package is light: it loads neither TensorFlow nor Keras until a name that needs them is used,
so processes that only build records stay small. It pins Keras to the legacy tf_keras, which must happen
before TensorFlow loads: Model Garden's layers inside a Keras 3 model would silently not be trained.

To read the code, begin with `layers/attention.py` for the model and `records/manifest.py` for the data;
`tasks/finetuning.py` and `training/run.py` train, `task_registry.py` lists the tasks.
"""

import importlib
import os
from typing import TYPE_CHECKING

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # else TensorFlow's first lines are about drivers it lacks

__version__ = "0.1.0"

if TYPE_CHECKING:  # editors and type checkers see the names; tests/test_api.py compares them with _MODULES
    from xlnet_tf.config import XLNetConfig as XLNetConfig
    from xlnet_tf.errors import UserError as UserError
    from xlnet_tf.generation.language_model import XLNetLanguageModel as XLNetLanguageModel
    from xlnet_tf.hub.releases import released as released
    from xlnet_tf.models.classifier import XLNetClassifier as XLNetClassifier
    from xlnet_tf.models.classifier import XLNetRegressor as XLNetRegressor
    from xlnet_tf.models.encoder import XLNetBackbone as XLNetBackbone
    from xlnet_tf.models.encoder import XLNetEncoder as XLNetEncoder
    from xlnet_tf.models.multiple_choice import XLNetChoice as XLNetChoice
    from xlnet_tf.models.multiple_choice import XLNetMultipleChoice as XLNetMultipleChoice
    from xlnet_tf.models.multiple_choice import XLNetRanker as XLNetRanker
    from xlnet_tf.models.pretrainer import XLNetPretrainer as XLNetPretrainer
    from xlnet_tf.models.question_answering import XLNetQuestionAnswering as XLNetQuestionAnswering
    from xlnet_tf.models.question_answering import XLNetSpan as XLNetSpan
    from xlnet_tf.models.token_classifier import XLNetTagger as XLNetTagger
    from xlnet_tf.models.token_classifier import XLNetTokenClassifier as XLNetTokenClassifier
    from xlnet_tf.records.example_reader import batches_by_length as batches_by_length
    from xlnet_tf.serving.sources import from_pretrained as from_pretrained
    from xlnet_tf.tasks.tables import finetune as finetune
    from xlnet_tf.text.tokenizer import XLNetTokenizer as XLNetTokenizer
    from xlnet_tf.verification.verify import verify_pretrained as verify_pretrained

_MODULES = {
    "UserError": "errors",
    "XLNetBackbone": "models.encoder",
    "XLNetChoice": "models.multiple_choice",  # the earlier name of XLNetMultipleChoice
    "XLNetClassifier": "models.classifier",
    "XLNetConfig": "config",
    "XLNetEncoder": "models.encoder",
    "XLNetLanguageModel": "generation.language_model",
    "XLNetMultipleChoice": "models.multiple_choice",
    "XLNetPretrainer": "models.pretrainer",
    "XLNetQuestionAnswering": "models.question_answering",
    "XLNetRanker": "models.multiple_choice",
    "XLNetRegressor": "models.classifier",
    "XLNetSpan": "models.question_answering",  # the earlier name of XLNetQuestionAnswering
    "XLNetTagger": "models.token_classifier",  # the earlier name of XLNetTokenClassifier
    "XLNetTokenClassifier": "models.token_classifier",
    "XLNetTokenizer": "text.tokenizer",
    "batches_by_length": "records.example_reader",
    "finetune": "tasks.tables",
    "from_pretrained": "serving.sources",
    "released": "hub.releases",
    "verify_pretrained": "verification.verify",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str):
    if name not in _MODULES:
        if name[0].isupper() or name == "pipeline":  # not a module, for which importing asks as well
            hints = importlib.import_module(f"{__name__}.hints")
            if instead := hints.suggest_name(name, _MODULES):
                # Importing would hide the message of an AttributeError.
                raise ImportError(f"{__name__} has no {name}: write {instead}", name=__name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # found at once from now on
    return value


def __dir__() -> list[str]:
    return list(__all__)
