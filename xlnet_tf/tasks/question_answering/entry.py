"""The entry of question answering in the task registry."""

from xlnet_tf.flags import Setting
from xlnet_tf.task_registry import TaskEntry, dense_variables
from xlnet_tf.tasks.flags import IN_SEGMENTS

_ANSWERS = (
    Setting("n_best", "task.n_best", int, "Most answers to a question in nbest_predictions.json.", 1),
    Setting("max_answer_len", "task.max_answer_len", int, "Most tokens of an answer.", 1),
    Setting("answer_precision", "task.answer_precision", float,
            "Share of the given answers that must be right on the dev examples; others are refused.", 0),
)  # fmt: skip
_THRESHOLD = Setting("threshold", "", float,
                     "The logit of no answer above which an answer is refused. Default: none is, as of "
                     "models that were trained with questions that all have an answer.")  # fmt: skip

# Where an answer begins, where it ends given its beginning, and whether there is one.
_SPAN = (
    *dense_variables("D 1", "start_logits/dense", "start_logits.dense", "start/logits"),
    *dense_variables("2D D", "end_logits/dense_0", "end_logits.dense_0", "end/hidden"),
    ("end/norm/gamma", "D", "end_logits/LayerNorm/gamma", "end_logits.LayerNorm.weight"),
    ("end/norm/beta", "D", "end_logits/LayerNorm/beta", "end_logits.LayerNorm.bias"),
    *dense_variables("D 1", "end_logits/dense_1", "end_logits.dense_1", "end/logits"),
    *dense_variables("2D D", "answer_class/dense_0", "answer_class.dense_0", "answerable/hidden"),
    ("answerable/logits/kernel", "D 1", "answer_class/dense_1/kernel", "answer_class.dense_1.weight.T"),
)
QUESTION_ANSWERING = TaskEntry(
    name="question_answering",
    aliases=("squad",),
    task="xlnet_tf.tasks.question_answering.task:QuestionAnsweringTask",
    model="xlnet_tf.models.question_answering:XLNetQuestionAnswering",
    serving="xlnet_tf.tasks.question_answering.serving:QuestionAnsweringModule",
    answering="xlnet_tf.tasks.question_answering.answering:QuestionAnsweringAnswering",
    synthetic="xlnet_tf.tasks.question_answering.task:synthetic",
    builder="tfrecord_builders.squad",
    head="span",
    variables=_SPAN,
    hugging_face="XLNetForQuestionAnswering",
    pipeline="question-answering",
    settings=(*_ANSWERS, *IN_SEGMENTS),
    export_settings=(_THRESHOLD,),
)
