"""The earlier place of `graph/module.py`, which tasks of other packages import."""

from xlnet_tf.serving.graph.module import (
    CLASSIFY,
    EXAMPLES,
    LOWEST,
    REGRESS,
    SERVING_DEFAULT,
    TOKENS,
    CandidatesModule,
    ServingModule,
    check_room,
    check_rows,
    check_temperature,
    lists,
    parse_examples,
    serialized_example,
    signature,
)

__all__ = [
    "CLASSIFY",
    "EXAMPLES",
    "LOWEST",
    "REGRESS",
    "SERVING_DEFAULT",
    "TOKENS",
    "CandidatesModule",
    "ServingModule",
    "check_room",
    "check_rows",
    "check_temperature",
    "lists",
    "parse_examples",
    "serialized_example",
    "signature",
]
