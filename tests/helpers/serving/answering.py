"""Models that answer without TensorFlow, of modules that answer with it; what they are asked and answer."""

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf import task_registry
from xlnet_tf.serving.answers.answering import Answering
from xlnet_tf.serving.graph.exported_model import ExportableModel

# Attributes of modules that are options of their answerings, by task.
OPTIONS = {
    "classification": ("pair", "truncation", "alert", "temperature", "labels", "multi_label"),
    "regression": ("pair", "truncation"),
    "question_answering": ("max_question_len", "stride", "threshold", "n_best", "max_answer_len"),
    "tagging": ("stride", "temperature", "labels"),
    "multiple_choice": ("max_qa_len", "temperature"),
    "ranking": ("max_query_len",),
}


def graph_of(module: ExportableModel):
    """Returns the graph of numbers of a module, computed by TensorFlow."""

    def graph(features):
        tensors = {name: tf.constant(values) for name, values in features.items()}
        return {name: values.numpy() for name, values in module.graph_outputs(tensors).items()}

    return graph


def of_module(module: ExportableModel, task: str, **changes) -> Answering:
    """Returns what answers as a module does."""
    options = {name: getattr(module, name) for name in OPTIONS[task]}
    options |= {"seq_len": module.seq_len, "buckets": module.buckets}
    model = module.use(lambda model: model)
    options["segment_len"] = model.segment_len
    if task == "question_answering":
        options |= {"start_top": model.start_top, "end_top": model.end_top}
    if model.segment_len:
        del options["buckets"]
    kind = task_registry.tasks()[task].load("answering")
    return kind(graph_of(module), module.tokenizer, **options | changes)


def columns_of(kind, module: ExportableModel) -> dict[str, list]:
    """Returns the rows of a kind of export as columns of text."""

    def text(value):
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    return {
        name: [[*map(text, value)] if isinstance(value, list) else text(value) for value in values]
        for name, values in kind.rows(module).items()
    }


def rows_of(kind, module: ExportableModel) -> list[dict]:
    columns = columns_of(kind, module)
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def assert_near(found, expected, context="", **tolerance):
    """Compares answers, numbers to 1e-5, all else exactly."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), context
        for name in expected:
            assert_near(found[name], expected[name], f"{context} {name}", **tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected), context
        for pair in zip(found, expected):
            assert_near(*pair, context, **tolerance)
    elif isinstance(expected, float | np.floating):
        assert found == pytest.approx(expected, nan_ok=True, **tolerance or {"abs": 1e-5}), context
    else:
        assert found == expected, context
