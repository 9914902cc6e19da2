"""The task's entry for the registry."""

from xlnet_tf.flags import Setting
from xlnet_tf.task_registry import TaskEntry

TASK = TaskEntry(
    name="preference",
    aliases=("comparison",),
    task="tests.helpers.preference.task:PreferenceTask",
    model="tests.helpers.preference.head:XLNetPreference",
    serving="tests.helpers.preference.serving:PreferenceModule",
    synthetic="tests.helpers.preference.task:synthetic",
    head="preference",
    variables=(("logits/kernel", "D 1", None, None), ("logits/bias", "1", None, None)),
    sequences=2,
    settings=(Setting("margin", "task.margin", float, "By how much the better text should win.", 0),),
)
