"""Answers without TensorFlow are those of the SavedModel; here TensorFlow computes the numbers of both."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import invent_texts
from tests.helpers.serving.toys import HOSTILE, built
from xlnet_tf.generation.graphs import LanguageModelGraphs
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.serving.answers.signatures import SERVING_DEFAULT
from xlnet_tf.tasks.pretraining.answering import LanguageModelAnswering
from xlnet_tf.tasks.pretraining.serving import LanguageModelModule

OPTIONS = {"seq_len": 24, "max_new_tokens": 6, "top_k": 3, "beams": 2, "layer": -1, "buckets": [8, 16]}
OPTIONS |= {"forbid": ["▁ba"], "repetition_penalty": 1.3}
TEXTS = [*HOSTILE, "", "mi <mask> kal", "<mask>" * 3, "<mask> " * 7, "ba " * 30 + "<mask>", *invent_texts(3)]
LONG = "ba ne <mask> " * 45_000
ROWS = [text.encode() for text in (*TEXTS, LONG)] + [b"ba \xff\xfe ne"]
COUNT = len(ROWS)
NUMBERS = np.arange(COUNT)
REQUESTS = {
    SERVING_DEFAULT: {"text": ROWS},
    "embed": {"text": ROWS},
    "score": {
        "text": ROWS,
        "context": ROWS[::-1],
        "order": [[b"left_to_right", b"right_to_left", b"random", b"back\xff"][row % 4] for row in NUMBERS],
        "seed": NUMBERS - 3,
    },
    "fill_mask": {"text": ROWS},
    "generate": {
        "prompt": ROWS,
        "max_new_tokens": NUMBERS % 8,  # 0 and 7 are wrong
        "temperature": np.where(NUMBERS % 5 == 4, -0.5, NUMBERS % 3).astype(np.float32),
        "top_k": NUMBERS % 4 - (NUMBERS == 9),
        "top_p": np.where(NUMBERS == 11, np.nan, 0.75).astype(np.float32),
        "seed": NUMBERS,
    },
    "search": {"prompt": ROWS, "max_new_tokens": NUMBERS % 8},
}


@pytest.fixture(scope="module")
def both(small_tokenizer):
    model = built(XLNetPretrainer, small_tokenizer)
    module = LanguageModelModule(model, small_tokenizer, **OPTIONS)
    return module, LanguageModelAnswering(LanguageModelGraphs(model), small_tokenizer, **OPTIONS)


@pytest.mark.parametrize("name", REQUESTS)
def test_answers_are_those_of_the_savedmodel(both, name):
    module, answering = both
    inputs = {
        key: np.array(values, object if isinstance(values, list) else None)
        for key, values in REQUESTS[name].items()
    }
    method = module.serve if name == SERVING_DEFAULT else getattr(module, name)
    tensors = {
        key: tf.constant(value.tolist()) if value.dtype == object else tf.constant(value)
        for key, value in inputs.items()
    }
    expected = {key: value.numpy() for key, value in method(**tensors).items()}
    found = answering.run(name, inputs)
    kinds = answering.signatures()[name]
    assert set(found) == set(expected) == set(kinds.outputs) and set(inputs) == set(kinds.inputs)
    for key, (_, *sizes) in kinds.outputs.items():
        values, wanted = _cut(np.asarray(found[key]), expected[key])
        assert values.ndim == wanted.ndim == 1 + len(sizes), key
        assert all(size in (-1, axis) for size, axis in zip(sizes, values.shape[1:])), key
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(values, wanted, atol=1e-4, rtol=1e-4, err_msg=key)
        else:
            np.testing.assert_array_equal(values, wanted, err_msg=key)


def _cut(*arrays):
    """Cuts arrays to the shape that they share; beyond it is padding, whose length may differ."""
    shared = tuple(slice(size) for size in np.min([values.shape for values in arrays], axis=0))
    for values in arrays:
        padding = values.copy()
        padding[shared] = b"" if values.dtype == object else 0
        assert not any(padding.flat)
    return [values[shared] for values in arrays]
