"""Requests that TensorFlow Serving runs when it loads a model, before it says that the model is available.

The first run of a graph takes many times as long as later ones. The file has a request for each signature
and batch size, so that no user waits for it.

Source: https://www.tensorflow.org/tfx/serving/saved_model_warmup
"""

import os
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis.input_pb2 import ExampleList, Input
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from xlnet_tf import files
from xlnet_tf.errors import UserError

WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
BUCKETS_FILE = os.path.join("assets.extra", "buckets.json")  # the local server sorts rows by them
MAX_RECORDS = 1000  # a server does not load a model with more


def write_warmup(
    folder: str,
    rows: Mapping[str, Mapping[str, np.ndarray]],
    methods: Mapping[str, str],
    batch_sizes: Sequence[int],
):
    """Writes the warm-up requests of a SavedModel: each signature with each batch size.

    `rows` are the inputs of one typical row by name, [1, ...], of each signature; they are repeated for each
    batch size. `methods` are TensorFlow Serving's methods of the signatures that do not `predict`.
    """
    if (count := len(rows) * len(batch_sizes)) > MAX_RECORDS:
        raise UserError(
            f"{len(rows)} signatures with {len(batch_sizes)} batch sizes each make {count} warm-up requests; "
            f"TensorFlow Serving takes {MAX_RECORDS}: give fewer batch sizes"
        )
    path = os.path.join(folder, WARMUP_FILE)
    files.make_folder(os.path.dirname(path))
    with files.writing(path), tf.io.TFRecordWriter(path) as writer:
        for name, row in rows.items():
            for batch_size in batch_sizes:
                batch = {key: np.repeat(value, batch_size, axis=0) for key, value in row.items()}
                writer.write(_request(name, methods.get(name, ""), batch).SerializeToString())


def _request(signature: str, method: str, batch: Mapping[str, np.ndarray]) -> PredictionLog:
    """Returns a request in the method's form: tensors by name, or a list of tf.Examples."""
    log = PredictionLog()
    if method.endswith(("/classify", "/regress")):
        [serialized] = batch.values()
        examples = ExampleList(examples=map(tf.train.Example.FromString, serialized))
        request = log.classify_log.request if method.endswith("/classify") else log.regress_log.request
        request.input.CopyFrom(Input(example_list=examples))
    else:
        request = log.predict_log.request
        for name, value in batch.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    request.model_spec.CopyFrom(ModelSpec(signature_name=signature))
    return log
