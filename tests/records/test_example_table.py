"""The batches of a set in memory are those of the reader, wherever they are made."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import REPOSITORY
from tests.helpers.records.synthetic import example_writer
from tests.helpers.training import toy, toy_finetuning
from xlnet_tf.records.batching import Batches
from xlnet_tf.records.example_reader import ExampleTable, example_dataset
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.layout import Column
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.reader import pretraining_dataset
from xlnet_tf.text.packing import pack

RECORDS, BATCH, STEPS = 11, 4, 9  # several epochs


@pytest.fixture(scope="module")
def folder(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("set")
    columns = [Column("label", "int32", None), Column("tags", "int16", 6)]
    with example_writer(folder, small_tokenizer, seq_len=6, columns=columns) as writer:
        for number in range(RECORDS):
            tokens = pack([20 + number] * (1 + number % 4), seq_len=6)._asdict()
            writer.write({**tokens, "label": number, "tags": [number] * 6}, {"id": str(number)})
    return folder


@pytest.mark.parametrize(
    ("order", "options"),
    [
        ({"seed": 3}, {}),
        ({"by_length": True}, {"start_step": 5, "num_hosts": 2, "host": 1, "rows_per_batch": 1}),
        ({"repeat": False}, {}),
        ({"repeat": False, "by_length": True}, {"start_step": 1, "num_hosts": 2, "host": 1}),
    ],
)
def test_batches_are_the_readers(folder, order, options):
    examples = ExampleSet.load(folder)
    order = Batches(examples, BATCH, **order)
    reader = example_dataset(order, **options)
    table = example_dataset(order, ExampleTable(examples), steps=STEPS, **options)
    assert table.element_spec == reader.element_spec
    found = list(table.as_numpy_iterator())
    expected = list(reader.take(len(found)).as_numpy_iterator())
    assert len(found) == len(expected) >= 2
    for one, other in zip(found, expected):
        for name, values in other.items():
            np.testing.assert_array_equal(one[name], values, err_msg=name)


def test_only_tensorflow_makes_them(folder):
    examples = ExampleSet.load(folder)
    table = example_dataset(Batches(examples, BATCH), ExampleTable(examples), steps=STEPS)
    graph = table._as_serialized_graph().numpy()
    graph = tf.compat.v1.GraphDef.FromString(graph)
    nodes = [*graph.node, *(node for called in graph.library.function for node in called.node_def)]
    assert len(nodes) > 20 and not [node.op for node in nodes if "PyFunc" in node.op]


@pytest.mark.long  # two more processes with TensorFlow
def test_another_process_makes_them(folder):
    """As the hosts of a TPU slice do, told by the one process that trains."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.helpers.records.remote_table", str(folder)],
        cwd=REPOSITORY,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    place, *indices = result.stdout.splitlines()[-1].split()
    assert place == "/job:worker/replica:0/task:0/device:CPU:0"
    expected = example_dataset(Batches(ExampleSet.load(folder), BATCH)).take(3)
    assert list(map(int, indices)) == np.concatenate([batch["index"] for batch in expected]).tolist()


def test_no_reader_is_tuned(tmp_path, small_tokenizer):
    toy.make_records(tmp_path / "pretraining")
    examples = toy_finetuning.make_examples(tmp_path / "examples", small_tokenizer, 8)
    datasets = {
        "pretraining": pretraining_dataset(Manifest.load(tmp_path / "pretraining"), 4),
        "examples": example_dataset(Batches(examples, 4)),
        "table": example_dataset(Batches(examples, 4), ExampleTable(examples), steps=2),
    }
    assert {name: data.options().autotune.enabled for name, data in datasets.items()} == dict.fromkeys(
        datasets, False
    )
