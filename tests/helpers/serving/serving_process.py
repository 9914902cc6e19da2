"""What TensorFlow Serving does with an exported folder, done by TensorFlow alone.

As a script, it serves folders in a process of its own, with nothing but tensorflow, tensorflow_text and the
protos of tensorflow-serving-api:

    python -I tests/helpers/serving/serving_process.py jobs.pickle results.pickle

jobs: name -> (folder of a version, {case: (signature, inputs by name)}); results: see `main`.

Sources: predict_util.cc and saved_model_warmup_util.cc in tensorflow_serving/servables/tensorflow;
tensorflow/cc/saved_model/loader.cc
"""

import functools
import os
import pathlib
import pickle
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework import op_def_registry

TAGS = ["serve"]
FORBIDDEN = ("xlnet_tf", "tf_keras", "official", "sentencepiece")  # what a server does not have
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"


class ServedModel:
    """A version's exported folder in a session: a graph without Python's checks of what is fed."""

    def __init__(self, folder: str):
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            graph = tf.compat.v1.saved_model.load(self._session, TAGS, folder)
        self.signatures = {
            name: signature
            for name, signature in graph.signature_def.items()
            if not name.startswith("__")  # how the graph is initialised
        }

    def predict(self, name: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Runs a signature; all errors are tf.errors.OpError, as a server would send them."""
        if name not in self.signatures:
            raise tf.errors.FailedPreconditionError(None, None, f'Serving signature key "{name}" not found.')
        signature = self.signatures[name]
        extra, missing = set(inputs) - set(signature.inputs), set(signature.inputs) - set(inputs)
        if extra or missing:
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"input size does not match signature: Sent extra: {{{','.join(sorted(extra))}}}. "
                f"Missing but required: {{{','.join(sorted(missing))}}}.",
            )
        outputs = self._callable(name)(*(np.asarray(inputs[key]) for key in signature.inputs))
        return dict(zip(signature.outputs, outputs, strict=True))

    @functools.cache  # noqa: B019  the model lives as long as the process
    def _callable(self, name: str):
        """Returns a function of a signature's inputs, in their order.

        Session.run compares what is fed with the placeholders first; this, and the server's session, do not.
        """
        signature = self.signatures[name]
        return self._session._make_callable_from_options(
            CallableOptions(
                feed=[tensor.name for tensor in signature.inputs.values()],
                fetch=[tensor.name for tensor in signature.outputs.values()],
            )
        )


def warmup_requests(folder: str) -> Iterator[tuple[str, str, dict[str, np.ndarray]]]:
    """Yields method, signature and inputs of each request in the warm-up file."""
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    for record in tf.data.TFRecordDataset(f"{folder}/{WARMUP_FILE}").as_numpy_iterator():
        log = PredictionLog.FromString(record)
        kind = log.WhichOneof("log_type")
        request = getattr(log, kind).request
        if kind == "predict_log":
            inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        else:
            examples = request.input.example_list.examples
            inputs = {"inputs": np.array([example.SerializeToString() for example in examples], object)}
        yield kind.removesuffix("_log"), request.model_spec.signature_name, inputs


def read_graph(folder: str) -> MetaGraphDef:
    """Reads an exported graph without loading it: what it needs may not be there."""
    [graph] = SavedModel.FromString(pathlib.Path(folder, "saved_model.pb").read_bytes()).meta_graphs
    return graph


def nodes_of(graph: MetaGraphDef) -> Iterator[Any]:
    """Yields all nodes of a graph and of its functions."""
    yield from graph.graph_def.node
    for function in graph.graph_def.library.function:
        yield from function.node_def


def foreign_nodes(graph: MetaGraphDef) -> set[tuple[str, str]]:
    """Returns operation and device of the nodes whose operations are not TensorFlow's own, or are Python's.

    To be called before tensorflow_text, which adds its operations to TensorFlow's, is imported.
    """
    functions = {function.signature.name for function in graph.graph_def.library.function}
    return {
        (node.op, node.device)
        for node in nodes_of(graph)
        if node.op not in functions and ("PyFunc" in node.op or op_def_registry.get(node.op) is None)
    }


def compiled_functions(graph: MetaGraphDef) -> list[str]:
    """Returns the functions and nodes that ask for XLA."""
    functions = graph.graph_def.library.function
    asking = [(function.signature.name, function.attr) for function in functions]
    asking += [(node.name, node.attr) for node in nodes_of(graph)]
    return [name for name, attributes in asking if attributes["_XlaMustCompile"].b]


def own_gradients(graph: MetaGraphDef) -> list[str]:
    """Returns the nodes with a gradient that the SavedModel lacks: TensorFlow warns whoever loads them."""
    return [node.name for node in nodes_of(graph) if node.attr["_gradient_op_type"].s]


def serve(folder: str, cases: Mapping[str, tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Loads a folder in both ways, answers the cases and replays the warm-up file."""
    session = ServedModel(folder)
    loaded = tf.saved_model.load(folder)

    def call(name, inputs):
        outputs = loaded.signatures[name](**{key: tf.constant(value) for key, value in inputs.items()})
        return {key: value.numpy() for key, value in outputs.items()}

    return {
        "signatures": {name: signature.method_name for name, signature in session.signatures.items()},
        "session": {name: _outcome(session.predict, *case) for name, case in cases.items()},
        "loaded": {name: _outcome(call, *case) for name, case in cases.items()},
        "warmup": [
            (method, name, inputs, _outcome(session.predict, name, inputs))
            for method, name, inputs in warmup_requests(folder)
        ],
    }


def _outcome(function, name: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray] | str:
    """Returns the outputs, or the error as text."""
    try:
        return function(name, inputs)
    except (tf.errors.OpError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def main(jobs_file: str, results_file: str):
    """Does the jobs; writes what `serve` and the checks of the graph return, by name, or "failure", a trace.

    "" has the modules that are loaded in the end although no server has them.
    """
    jobs = pickle.loads(pathlib.Path(jobs_file).read_bytes())
    graphs = {name: read_graph(folder) for name, (folder, _) in jobs.items()}
    results = {
        name: {
            "foreign": foreign_nodes(graph),
            "compiled": compiled_functions(graph),
            "own_gradients": own_gradients(graph),
        }
        for name, graph in graphs.items()
    }
    import tensorflow_text  # noqa: F401

    for name, (folder, cases) in jobs.items():
        try:
            results[name] |= serve(folder, cases)
        except Exception:
            results[name]["failure"] = traceback.format_exc()
    results[""] = [module for module in FORBIDDEN if module in sys.modules]
    pathlib.Path(results_file).write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
