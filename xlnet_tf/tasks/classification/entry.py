"""The entries of classification and regression in the task registry."""

from xlnet_tf.flags import Setting
from xlnet_tf.task_registry import TaskEntry, dense_variables
from xlnet_tf.tasks.flags import IN_SEGMENTS, LABELS, SUMMARY

_OF_TEXTS = (
    SUMMARY,
    Setting("head_name", "task.model.head_name", str,
            "The data set in the names of the head's variables. Default: the preset's name, or task."),
    *IN_SEGMENTS,
)  # fmt: skip
_SAMPLING = Setting("sampling", "task.sampling", ("uniform", "balanced"),
                    "Whether training sees each example equally often, or each class.")  # fmt: skip
_ALERTS = (
    Setting("alert_label", "task.alert.label", str, "The class whose texts are alerts."),
    Setting("alert_precision", "task.alert.precision", float,
            "What alerts must reach on the dev examples, with as much recall as possible.", 0),
    Setting("alert_recall", "task.alert.recall", float,
            "What alerts must reach on the dev examples, with as much precision as possible.", 0),
)  # fmt: skip
_EXPORT_OF_TEXTS = (
    Setting("head_name", "", str, "Which head, if there are several."),
    Setting("pair", "", bool, "The model is of pairs of texts."),
)
CLASSIFICATION = TaskEntry(
    name="classification",
    task="xlnet_tf.tasks.classification.task:ClassificationTask",
    model="xlnet_tf.models.classifier:XLNetClassifier",
    serving="xlnet_tf.tasks.classification.serving:ClassificationModule",
    answering="xlnet_tf.tasks.classification.answering:ClassificationAnswering",
    synthetic="xlnet_tf.tasks.classification.task:synthetic",
    builder="tfrecord_builders.classification",
    head="classification_{task}",
    variables=dense_variables(
        "D C", "model/classification_{task}/logit", "classification_{task}.logits_proj"
    ),
    hugging_face="XLNetForSequenceClassification",
    pipeline="text-classification",
    labels=True,
    settings=(*_OF_TEXTS, *LABELS, _SAMPLING, *_ALERTS),
    export_settings=_EXPORT_OF_TEXTS,
)

REGRESSION = TaskEntry(
    name="regression",
    task="xlnet_tf.tasks.classification.task:ClassificationTask",
    model="xlnet_tf.models.classifier:XLNetRegressor",
    serving="xlnet_tf.tasks.classification.serving:RegressionModule",
    answering="xlnet_tf.tasks.classification.answering:RegressionAnswering",
    synthetic="xlnet_tf.tasks.classification.task:synthetic_regression",
    builder="tfrecord_builders.classification",
    examples="classification",
    head="regression_{task}",
    variables=dense_variables("D 1", "model/regression_{task}/logit", "regression_{task}.logits_proj"),
    hugging_face="XLNetForSequenceClassification",
    pipeline="text-classification",
    settings=_OF_TEXTS,
    export_settings=_EXPORT_OF_TEXTS,
)
