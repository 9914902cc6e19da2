"""Weights as 8-bit integers."""

import numpy as np
import tensorflow as tf

from tests.helpers.models import uncached
from tests.helpers.models.heads import arrays, random_features, random_head
from xlnet_tf.checkpoints import names
from xlnet_tf.generation.decoding_loop import sample
from xlnet_tf.generation.layout import continuation
from xlnet_tf.generation.settings import same_for_all
from xlnet_tf.serving.graph.int8 import Int8Weights


def is_kernel(name):
    return name.endswith(("/kernel", "/embeddings")) and "/logits/" not in name


def test_int8_restores_model_weights():
    for kind in ("classifier_attn", "span", "tagger"):
        model = random_head(kind)
        features = random_features(kind, np.random.default_rng(0), training=False)
        before, int8 = arrays(model(features)), Int8Weights(model)
        graph = tf.function(lambda f, model=model: model(f, training=False))
        with int8.in_place():
            outputs = arrays(graph(features) if kind == "span" else model(features, training=False))
        for name, expected in before.items():
            if not name.endswith("index"):
                np.testing.assert_allclose(outputs[name], expected, atol=0.15, rtol=0.1)
                assert not np.array_equal(outputs[name], expected)
        np.testing.assert_array_equal(arrays(model(features))[name], before[name])
        stored = sum(variable.dtype == tf.int8 for variable in int8.variables)
        assert stored == sum(is_kernel(names.canonical(variable.name)) for variable in model.variables)


def test_int8_generates_as_restored_weights_do(eagerly):
    model, same = (uncached.random_model(uncached.CONFIG) for _ in range(2))
    int8 = Int8Weights(model)
    for variable in same.variables:
        if table := int8.tables.get(names.canonical(variable.name)):
            variable.assign(tf.convert_to_tensor(table))

    @tf.function(autograph=False)
    def continue_texts(model):
        layout = continuation(
            tf.constant([[9, 11, 12], [10, 9, 9]]), tf.constant([3, 1]), tf.constant([4, 4]), 4
        )
        settings = same_for_all(2, temperature=0.0, top_k=0, top_p=1.0, seed=0)
        return sample(model, layout, tf.nest.map_structure(tf.constant, settings))

    with int8.in_place():
        found = continue_texts(model)
    expected = continue_texts(same)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.log_probs, expected.log_probs, rtol=1e-5)


def test_each_output_is_off_by_half_a_step_at_most():
    model = random_head("classifier")
    int8 = Int8Weights(model)
    for name, axes in {
        "word_embedding/embeddings": (1,),
        "layer_0/attention/query/kernel": (0,),
        "layer_0/attention/output/kernel": (1, 2),
        "layer_0/feed_forward/outer/kernel": (0,),
    }.items():
        [variable] = [v for v in model.variables if names.canonical(v.name) == name]
        values = variable.numpy()
        steps = np.abs(values).max(axis=axes, keepdims=True) / 127
        assert (np.abs(tf.convert_to_tensor(int8.tables[name]) - values) <= steps / 2 * 1.0001).all()
    table, ids = int8.tables["word_embedding/embeddings"], tf.constant([[3, 7], [0, 3]])
    np.testing.assert_array_equal(tf.gather(table, ids), tf.gather(tf.convert_to_tensor(table), ids))
