"""The entry of multiple choice in the task registry."""

from xlnet_tf.task_registry import TaskEntry, dense_variables
from xlnet_tf.tasks.flags import IN_SEGMENTS, SUMMARY

MULTIPLE_CHOICE = TaskEntry(
    name="multiple_choice",
    aliases=("choice", "race"),
    task="xlnet_tf.tasks.multiple_choice.task:MultipleChoiceTask",
    model="xlnet_tf.models.multiple_choice:XLNetMultipleChoice",
    serving="xlnet_tf.tasks.multiple_choice.serving:MultipleChoiceModule",
    answering="xlnet_tf.tasks.multiple_choice.answering:MultipleChoiceAnswering",
    synthetic="xlnet_tf.tasks.multiple_choice.task:synthetic",
    builder="tfrecord_builders.race",
    head="choice",
    variables=dense_variables("D 1", "logits/dense", "choice.logits_proj"),
    hugging_face="XLNetForMultipleChoice",
    pipeline="multiple-choice",
    sequences=None,
    settings=(SUMMARY, *IN_SEGMENTS),
    model_options={"num_choices": 1},
)
