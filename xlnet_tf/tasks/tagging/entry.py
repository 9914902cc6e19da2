"""The entry of tagging in the task registry."""

from xlnet_tf.task_registry import TaskEntry, dense_variables
from xlnet_tf.tasks.flags import IN_SEGMENTS, LABELS

TAGGING = TaskEntry(
    name="tagging",
    task="xlnet_tf.tasks.tagging.task:TaggingTask",
    model="xlnet_tf.models.token_classifier:XLNetTokenClassifier",
    serving="xlnet_tf.tasks.tagging.serving:TaggingModule",
    answering="xlnet_tf.tasks.tagging.answering:TaggingAnswering",
    synthetic="xlnet_tf.tasks.tagging.task:synthetic",
    builder="tfrecord_builders.tagging",
    head="tagging",
    variables=dense_variables("D C", None, "classifier"),
    hugging_face="XLNetForTokenClassification",
    pipeline="token-classification",
    labels=True,
    settings=(*IN_SEGMENTS, *LABELS),
)
