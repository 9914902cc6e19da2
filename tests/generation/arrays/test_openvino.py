"""Tables of distances for OpenVINO's graphs.

tests/serving/openvino/test_language_model.py compares what is written with them with TensorFlow.
"""

import numpy as np
import pytest

from xlnet_tf.generation.arrays.openvino import OpenVinoEngine
from xlnet_tf.generation.settings import WritingRules, same_for_all

pytest.importorskip("openvino")

PAD, MASK = 5, 6
NO_RULES = WritingRules(np.int32([]), np.float32(1))


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
