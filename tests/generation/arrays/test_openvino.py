"""The numbers of OpenVINO's graphs, and what is written with them, are those of TensorFlow."""

import dataclasses

import numpy as np
import pytest

from tests.helpers.models import uncached
from xlnet_tf.generation.arrays.openvino import OpenVinoEngine
from xlnet_tf.generation.functions import functions_of
from xlnet_tf.generation.graphs import LanguageModelGraphs
from xlnet_tf.generation.settings import WritingRules, same_for_all
from xlnet_tf.serving.openvino.conversion import convert

openvino = pytest.importorskip("openvino")

PAD, MASK = 5, 6
NO_RULES = WritingRules(np.int32([]), np.float32(1))
RULES = WritingRules(np.int32([8, 20, 33]), np.float32(1.7))

pytestmark = pytest.mark.integration  # the conversion of seven graphs takes a while


@pytest.fixture(scope="module")
def engines():
    """Returns an engine of OpenVINO's graphs, and one of TensorFlow's."""
    model = uncached.random_model(dataclasses.replace(uncached.CONFIG, n_layer=2))
    config, core = model.encoder.config, openvino.Core()
    graphs = {name: convert(*function) for name, function in functions_of(model)}

    def compile(name, outputs):
        del outputs  # all of them
        compiled = core.compile_model(graphs[name], "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        names = [port.any_name for port in compiled.inputs]
        return lambda inputs: {
            port.any_name: value.copy()
            for port, value in compiled({name: inputs[name] for name in names}).items()
        }

    sizes = {"n_layer": config.n_layer, "d_model": config.d_model, "vocab_size": config.n_token}
    return OpenVinoEngine(compile, **sizes), LanguageModelGraphs(model)


def check_same(found, expected):
    """Compares arrays in tuples, and in tuples by name: numbers within 1e-5, integers exactly."""
    if isinstance(expected, tuple):
        for index, value in enumerate(expected):
            name = getattr(expected, "_fields", ())[index : index + 1]
            check_same(getattr(found, name[0]) if name else found[index], value)
        return
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.fixture
def texts():
    """Returns ids of three prompts, one of them empty, and their lengths."""
    rng, lengths = np.random.default_rng(0), np.int32([7, 0, 4])
    ids = rng.integers(9, uncached.CONFIG.n_token, [3, 7]).astype(np.int32)
    return np.where(np.arange(7) < lengths[:, None], ids, PAD).astype(np.int32), lengths


@pytest.mark.parametrize("layer", [-1, 0])
def test_vectors(engines, texts, layer):
    ids = np.concatenate([np.flip(texts[0], axis=1), np.tile(np.int32([[4, 3]]), [3, 1])], axis=1)
    mask = (ids != PAD).astype(np.uint8)
    segments = np.where(mask, 0, 4).astype(np.uint8)
    segments[:, -1] = 2
    tensorflow, openvino = engines
    check_same(tensorflow.embed(ids, mask, segments, layer), openvino.embed(ids, mask, segments, layer))


def test_scores(engines, texts):
    ids, lengths = texts
    mask = np.arange(7) < lengths[:, None]
    is_scored = mask & (np.arange(7) >= np.int32([[2], [0], [0]]))
    ranks = np.where(is_scored, np.cumsum(is_scored[:, ::-1], axis=1)[:, ::-1] - 1, 0).astype(np.int32)
    tensorflow, openvino = engines
    asked = ids, mask.astype(np.int32), is_scored, ranks
    check_same(tensorflow.score(*asked), openvino.score(*asked))


@pytest.mark.parametrize("rules", [NO_RULES, RULES], ids=["free", "rules"])
@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 0.8, "top_k": 20, "top_p": 0.8}],
    ids=["greedy", "drawn", "truncated"],
)
def test_continuations(engines, texts, settings, rules):
    settings = same_for_all(3, seed=4, **{"top_k": 0, "top_p": 1.0, **settings})
    tensorflow, openvino = (
        engine.sample(*texts, 6, settings, np.int32([12, 13]), rules) for engine in engines
    )
    check_same(tensorflow, openvino)


@pytest.mark.parametrize("rules", [NO_RULES, RULES], ids=["free", "rules"])
@pytest.mark.parametrize("beams", [1, 3])
def test_beams(engines, texts, beams, rules):
    tensorflow, openvino = (engine.search(*texts, 5, beams, np.int32([12]), rules) for engine in engines)
    check_same(tensorflow, openvino)


@pytest.fixture
def gaps():
    """Returns two texts with three gaps and two, and an order of filling."""
    ids = np.random.default_rng(1).integers(9, uncached.CONFIG.n_token, [2, 8]).astype(np.int32)
    ids[0, [1, 4, 5]] = ids[1, [0, 7]] = MASK
    ids[1, 6] = PAD  # stands for padding, which a text has nowhere else
    return ids, (ids != MASK) & (ids != PAD), np.int32([[4, 1, 5], [7, 0, -1]])


def test_fillings(engines, gaps):
    tensorflow, openvino = (engine.fill_jointly(*gaps, 3) for engine in engines)
    check_same(tensorflow, openvino)


@pytest.mark.parametrize("easiest_first", [False, True])
def test_drawn_fillings(engines, gaps, easiest_first):
    tensorflow, openvino = (
        engine.infill(*gaps, same_for_all(2, 1.0, 0, 1.0, 1), easiest_first) for engine in engines
    )
    check_same(tensorflow, openvino)


def test_a_thread_never_reads_a_table_that_another_is_making():
    meanwhile = []

    def compile(name, outputs):
        assert (name, outputs) == ("position_keys", ())

        def position_keys(inputs):
            if not meanwhile:
                meanwhile.append(None)
                meanwhile.append(engine._distances(200))  # of another thread
            return {"position_keys": np.zeros([1, 1, inputs["length"] + inputs["ahead"], 1], np.float32)}

        return position_keys

    engine = OpenVinoEngine(compile, n_layer=1, d_model=1, vocab_size=1)
    assert engine._distances(200).shape == meanwhile[1].shape == (1, 1, 511, 1)


def test_the_step_of_an_earlier_export_gets_the_distances_of_all_layers_in_one():
    seen = []

    def step(inputs):
        np.testing.assert_array_equal(inputs["position_keys"][0], inputs["position_keys_0"])
        seen.append(inputs["position_keys"].shape)
        new = np.zeros([1, 1, 1, 1], np.float32)
        return {"log_probs": np.zeros([1, 1, 1, 12], np.float32), "new_keys_0": new, "new_values_0": new}

    def start(inputs):
        heads = np.zeros([1, 1, inputs["ids"].shape[1], 1], np.float32)
        return {"queries": np.zeros([1, 1, 1], np.float32), "keys_0": heads, "values_0": heads}

    functions = {
        "start": start,
        "step": step,
        "write_head": lambda inputs: {"log_probs": np.zeros([1, 12], np.float32)},
        "position_keys": lambda inputs: {"position_keys": np.ones([1, 1, inputs["length"], 1], np.float32)},
    }
    engine = OpenVinoEngine(lambda name, _: functions[name], n_layer=1, d_model=1, vocab_size=12)
    settings = same_for_all(1, 0.0, 0, 1.0, 0)
    engine.sample(np.int32([[9]]), np.int32([1]), 2, settings, np.int32([]), NO_RULES)
    assert seen == [(1, 1, 4, 1)]
