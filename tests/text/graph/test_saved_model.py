"""A SavedModel holds the text path: on the CPU, and without this package."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tests.conftest import invent_texts
from xlnet_tf.text.graph.tokenizer import GraphTokenizer
from xlnet_tf.text.training import train_tokenizer

TEXTS = [b"ba ne 12, \xff kal", b"", "  Caf\u00e9 \u00bd ``tor''".encode()]
TEXT_OPERATIONS = ("Sentencepiece", "Unicode", "String", "StaticRegex", "Regex")
# Imports nothing but TensorFlow's own packages.
PROCESS = """
import pickle, sys
import tensorflow as tf, tensorflow_text
texts, folder, answers = pickle.loads(sys.stdin.buffer.read())
signatures = tf.saved_model.load(folder).signatures
outputs = {
    name: {key: value.numpy() for key, value in serve(tf.constant(texts)).items()}
    for name, serve in signatures.items()
}
assert not {"xlnet_tf", "sentencepiece"} & set(sys.modules)
with open(answers, "wb") as file:
    pickle.dump(outputs, file)
"""


SIGNATURE = [tf.TensorSpec([None], tf.string)]


class Served(tf.Module):
    """Two tokenizers: all that the one does, and the ids of the other."""

    def __init__(self, one, other):
        super().__init__()
        self.one, self.other = GraphTokenizer(one), GraphTokenizer(other)

    @tf.function(input_signature=SIGNATURE)
    def serve_all(self, texts):
        ids, begins, ends = self.one.encode_with_offsets(texts)
        parts = {"ids": ids, "begins": begins, "ends": ends, "pieces": self.one.pieces(ids)}
        whole = {"decoded": self.one.decode(ids), "valid": self.one.valid(texts)}
        return {name: part.to_tensor() for name, part in parts.items()} | whole

    @tf.function(input_signature=SIGNATURE)
    def serve_other(self, texts):
        return {"ids": self.other.encode(texts).to_tensor()}


@pytest.fixture(scope="module")
def saved(small_tokenizer, tmp_path_factory):
    """Returns a folder with a signature for each of two tokenizers, and their answers before saving."""
    module = Served(small_tokenizer, train_tokenizer(invent_texts(600), 60))
    folder = tmp_path_factory.mktemp("saved")
    signatures = {"all": module.serve_all, "other": module.serve_other}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    answers = {name: serve(tf.constant(TEXTS)) for name, serve in signatures.items()}
    return folder, {
        name: {key: value.numpy() for key, value in outputs.items()} for name, outputs in answers.items()
    }


@pytest.mark.integration
def test_a_process_without_this_package(saved, tmp_path):
    folder, expected = saved
    answers = tmp_path / "answers"
    subprocess.run(
        [sys.executable, "-I", "-c", PROCESS],
        input=pickle.dumps((TEXTS, str(folder), str(answers))),
        check=True,
        cwd=tmp_path,
    )
    found = pickle.loads(answers.read_bytes())
    assert set(found) == set(expected)
    for name, outputs in expected.items():
        assert set(found[name]) == set(outputs)
        for key, value in outputs.items():
            np.testing.assert_array_equal(found[name][key], value)
    assert (found["all"]["ids"] != found["other"]["ids"]).any()  # neither took the other's model


@pytest.mark.integration
def test_all_text_operations_are_on_the_cpu(saved):
    folder, _ = saved
    graph = SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    nodes = [node for node in nodes if node.op.startswith(TEXT_OPERATIONS)]
    assert {node.op: node.device for node in nodes if "CPU" not in node.device} == {}
    pieces = ("", "Tokenize", "TokenizeWithOffsets", "Detokenize", "IdToString")
    operations = {*(f"Sentencepiece{name}Op" for name in pieces), "StringLength"}
    operations |= {f"Unicode{name}" for name in ("Decode", "Encode", "Transcode")}
    assert {node.op for node in nodes} >= operations
    # Models are found by name: those of both tokenizers, and the one that finds characters, which they share.
    models = {
        (node.attr["shared_name"].s, node.attr["model"].s) for node in nodes if node.op == "SentencepieceOp"
    }
    assert len(models) == len(dict(models)) == 3
