"""The entry of ranking in the task registry."""

from xlnet_tf.flags import Setting
from xlnet_tf.task_registry import TaskEntry, dense_variables
from xlnet_tf.tasks.flags import IN_SEGMENTS, SUMMARY

RANKING = TaskEntry(
    name="ranking",
    task="xlnet_tf.tasks.ranking.task:RankingTask",
    model="xlnet_tf.models.multiple_choice:XLNetRanker",
    serving="xlnet_tf.tasks.ranking.serving:RankingModule",
    answering="xlnet_tf.tasks.ranking.answering:RankingAnswering",
    synthetic="xlnet_tf.tasks.ranking.task:synthetic",
    builder="tfrecord_builders.ranking",
    head="ranking",
    variables=dense_variables("D 1", None, None),
    pipeline="text-ranking",
    sequences=None,
    settings=(
        SUMMARY,
        Setting("ranking_loss", "task.loss", ("pointwise", "pairwise", "listwise"), "Loss of training."),
        *IN_SEGMENTS,
    ),
    model_options={"num_choices": 1},
)
