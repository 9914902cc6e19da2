"""Old names of the exported models, kept for tasks of other packages that import them."""

from xlnet_tf.serving.answers.options import buckets_for, check_room, check_temperature
from xlnet_tf.serving.answers.signatures import LOWEST, SERVING_DEFAULT
from xlnet_tf.serving.graph.exported_model import CLASSIFY, EXAMPLES, REGRESS, TOKENS
from xlnet_tf.serving.graph.exported_model import CandidatesModule as CandidatesModule
from xlnet_tf.serving.graph.exported_model import ExportableModel as ServingModule
from xlnet_tf.serving.graph.inputs import check_rows, lists, parse_examples, serialized_example, signature

__all__ = [
    "CLASSIFY",
    "EXAMPLES",
    "LOWEST",
    "REGRESS",
    "SERVING_DEFAULT",
    "TOKENS",
    "CandidatesModule",
    "ServingModule",
    "buckets_for",
    "check_room",
    "check_rows",
    "check_temperature",
    "lists",
    "parse_examples",
    "serialized_example",
    "signature",
]
