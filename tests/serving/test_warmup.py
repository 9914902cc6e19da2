"""The warm-up file has what TensorFlow Serving reads: one request for each signature and batch size."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.serving.serving_process import warmup_requests
from xlnet_tf.errors import UserError
from xlnet_tf.serving.graph.exported_model import CLASSIFY, REGRESS
from xlnet_tf.serving.graph.inputs import serialized_example
from xlnet_tf.serving.warmup import MAX_RECORDS, write_warmup

ROWS = {
    "serving_default": {"text": np.array(["h\u00e9llo"], object)},
    "tokens": {"ids": np.array([[7, 8]], np.int32), "mask": np.array([[True, False]])},
    "classify": {"inputs": np.array([serialized_example({"text": "one"})], object)},
    "regress": {"inputs": np.array([serialized_example({"text": "two"})], object)},
}
METHODS = {"classify": CLASSIFY, "regress": REGRESS}


def test_each_signature_with_each_batch_size(tmp_path):
    write_warmup(str(tmp_path), ROWS, METHODS, (1, 3))
    requests = list(warmup_requests(str(tmp_path)))
    assert [(method, name, len(next(iter(inputs.values())))) for method, name, inputs in requests] == [
        (METHODS.get(name, "/predict").split("/")[-1], name, size) for name in ROWS for size in (1, 3)
    ]
    for _, name, inputs in requests:
        assert set(inputs) == set(ROWS[name])
        for key, [value] in ROWS[name].items():
            for row in inputs[key]:
                if name in METHODS:
                    assert tf.train.Example.FromString(row) == tf.train.Example.FromString(value)
                elif isinstance(value, str):
                    assert row == value.encode()
                else:
                    assert row.dtype == value.dtype
                    np.testing.assert_array_equal(row, value)


def test_no_more_requests_than_a_server_takes(tmp_path):
    write_warmup(str(tmp_path), ROWS, METHODS, range(1, MAX_RECORDS // len(ROWS) + 1))
    with pytest.raises(UserError, match="4 signatures with 251 batch sizes .* TensorFlow Serving takes 1000"):
        write_warmup(str(tmp_path), ROWS, METHODS, range(1, MAX_RECORDS // len(ROWS) + 2))
