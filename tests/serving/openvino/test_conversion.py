"""A graph that OpenVINO runs gives the numbers of the model that it was made of."""

import sys
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.profiles import mostly_integration
from tests.helpers.serving.exports import KINDS
from tests.helpers.serving.toys import built
from xlnet_tf import task_registry
from xlnet_tf.errors import UserError
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.serving.graph.exported_model import MAIN_GRAPH, CandidatesModule
from xlnet_tf.serving.openvino import compiled, conversion
from xlnet_tf.tasks.classification.serving import ClassificationModule

openvino = pytest.importorskip("openvino")
QUICK = ("classification", "question_answering")  # a pooled vector, and beams
TEXTS = ["ba ne", "", "tor mi kal " * 9], ["su", "ren do", ""]


def compile_graph(module, folder, **options):
    path = str(folder / "graph.xml")
    openvino.save_model(
        conversion.convert(*module.graph_functions()[MAIN_GRAPH]), path, compress_to_fp16=False
    )
    return compiled.CompiledGraph(path, "float32", **options)


def features_of(tokenizer, seq_len):
    return {name: np.int32(values) for name, values in tokenizer(*TEXTS, seq_len=seq_len).items()}


@pytest.mark.parametrize("task", mostly_integration(task_registry.tasks(), *QUICK))
def test_outputs_are_those_of_the_model(task, small_tokenizer, tmp_path):
    kind = KINDS[task]
    model = kind.model(small_tokenizer)
    module = kind.module(model, small_tokenizer)
    graph = compile_graph(module, tmp_path)
    for length in (40, 33):
        features = features_of(small_tokenizer, length)
        expected = module.graph_outputs(features)
        found = graph(features)
        assert found.keys() == expected.keys()
        alone = [graph({name: values[row:][:1] for name, values in features.items()}) for row in range(3)]
        for name, values in found.items():
            assert values.dtype == (np.int32 if name.endswith("_index") else np.float32)
            np.testing.assert_allclose(values, expected[name], rtol=1e-5, atol=1e-5, err_msg=name)
            np.testing.assert_allclose(values, np.concatenate([row[name] for row in alone]), atol=1e-5)
    if kind.answer and not isinstance(module, CandidatesModule):  # computed without the module
        independent = kind.answer(model, features)
        for name in independent.keys() & found.keys():
            np.testing.assert_allclose(found[name], independent[name], atol=1e-5)


def test_a_model_that_reads_in_segments(small_tokenizer, tmp_path):
    model = built(XLNetClassifier, small_tokenizer, 2, segment_len=8, encoder_options={"memory_len": 8})
    module = ClassificationModule(model, small_tokenizer, seq_len=24)
    graph = compile_graph(module, tmp_path)
    features = features_of(small_tokenizer, 24)
    expected = tf.nn.softmax(model(features)).numpy()
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(graph(features)["probabilities"], expected, atol=1e-5)


def test_threads_share_a_graph(small_tokenizer, tmp_path):
    kind = KINDS["classification"]
    graph = compile_graph(kind.module(kind.model(small_tokenizer), small_tokenizer), tmp_path, streams=2)
    features = features_of(small_tokenizer, 40)
    rows = [{name: values[row:][:1] for name, values in features.items()} for row in range(3)]
    expected = [graph(row)["logits"] for row in rows]

    def ask(number):
        turns = [(number + turn) % 3 for turn in range(20)]
        return all(np.array_equal(graph(rows[row])["logits"], expected[row]) for row in turns)

    with futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(4)))


def test_what_cannot_be_run_is_named(monkeypatch, tmp_path):
    (tmp_path / "graph.xml").write_text("<net")
    with pytest.raises(UserError, match="graph.xml cannot be read by OpenVINO .*export the model again"):
        compiled.CompiledGraph(str(tmp_path / "graph.xml"), "float32")
    monkeypatch.setattr(openvino, "__version__", "2024.6.0-17404-4c0f47d2335-releases/2024/6")
    with pytest.raises(UserError, match=r"OpenVINO is 2024.6.0; expected 2026.4 or later: pip install"):
        compiled.import_openvino()
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UserError, match=r"OpenVINO is not installed .*xlnet-tf\[openvino\]"):
        compiled.import_openvino()


@pytest.mark.parametrize(("weights", "known", "in_bfloat16", "said"), [
    ("bfloat16", ["FP32", "BF16"], True, ""),
    ("bfloat16", ["FP32"], False, "no bfloat16 instructions: the model computes in float32"),
    ("int8", ["FP32", "BF16", "INT8"], True, ""),
    ("int8", ["FP32"], False, "no 8-bit instructions: the int8 model computes more slowly"),
])  # fmt: skip
def test_it_computes_in_what_was_asked_for_or_says_what_else(
    monkeypatch, caplog, weights, known, in_bfloat16, said
):
    class Core:
        def get_property(self, device, name):
            return known

    with caplog.at_level("WARNING"):
        assert compiled.computes_in_bfloat16(Core(), weights) == in_bfloat16
    assert said in caplog.text and bool(said) == bool(caplog.text)
