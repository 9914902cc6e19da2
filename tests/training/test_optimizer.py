"""The optimizer against the original's schedules and steps, and against a plain numpy AdamW."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.models import original
from xlnet_tf.checkpoints import names
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.errors import UserError
from xlnet_tf.models.classifier import XLNetClassifier, classification_losses
from xlnet_tf.models.pretrainer import target_losses
from xlnet_tf.training.optimizer import AdamW, OptimizerConfig, WarmupDecay, build_optimizer


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("beta_1", 0.0, "is 0.0"),
        ("beta_1", 1e-50, "is 1e-50"),
        ("beta_2", 1.0, "is 1.0"),
        ("beta_2", 0.99999999, "is 0.99999999"),
        ("epsilon", 0.0, "is 0.0"),
        ("warmup_steps", 10, "is 10 and train_steps is 10"),
        ("warmup_steps", -1, "is -1"),
        ("decay", "step", "is 'step'"),
        ("exclude_from_decay", ["gamma", "(bias"], r"has '\(bias', which is not a regular expression"),
    ],
)
def test_impossible_settings_are_refused(name, value, shown):
    with pytest.raises(UserError, match=f"{name} {shown}.*expected"):
        build_optimizer(OptimizerConfig(**{name: value}), 10, 2)


@pytest.mark.parametrize("case", range(6))
def test_schedule_equals_the_originals(golden, case):
    fixture = np.load(golden("lr_schedule.npz"))
    flags = json.loads(str(fixture["meta_json"]))["cases"][case]["flags"]
    config = OptimizerConfig(
        learning_rate=flags["learning_rate"],
        warmup_steps=flags["warmup_steps"],
        min_lr_ratio=flags["min_lr_ratio"],
        decay={"poly": "linear", "cos": "cosine"}[flags["decay_method"]],
    )
    schedule = WarmupDecay(config.as_dict(), flags["train_steps"])
    steps = fixture[f"steps_{case}"]
    got = [float(schedule(tf.constant(int(step), tf.int64))) for step in steps]
    # Near the end the original's own float32 rounding, relative to the peak, is all that is left.
    np.testing.assert_allclose(got, fixture[f"lr_{case}"], rtol=2e-6, atol=1e-6 * flags["learning_rate"])


@pytest.mark.parametrize("decay", ["linear", "cosine"])
@pytest.mark.parametrize("number", [0, 1, 3_000_000_000])
def test_a_whole_number_is_as_good_as_one_with_a_point(number, decay):
    """As yaml, --params_override and --sweep have them: learning_rate: 1."""

    def rates(**settings):
        schedule = WarmupDecay({"warmup_steps": 2, "decay": decay, **settings}, 10)
        return [float(schedule(tf.constant(step, tf.int64))) for step in (0, 1, 5, 10)]

    for name in ("learning_rate", "min_lr_ratio"):
        assert rates(**{name: number}) == rates(**{name: float(number)})


def numpy_adamw(values, gradients, rates, decays, *, steps_rate, clip, bias_correction):
    """Replays AdamW in float64: {name: value}, a list of {name: gradient}; returns values and slots."""
    values = {k: v.astype(np.float64) for k, v in values.items()}
    beta_1, beta_2 = np.float32([0.9, 0.999]).astype(np.float64)  # as the kernel gets them
    m, s = ({k: np.zeros_like(v) for k, v in values.items()} for _ in range(2))
    for step, gradient in enumerate(gradients):
        norm = np.sqrt(sum(np.sum(np.square(g, dtype=np.float64)) for g in gradient.values()))
        for k in values:
            g = gradient[k] * min(1.0, clip / norm)
            m[k] = beta_1 * m[k] + (1 - beta_1) * g
            s[k] = beta_2 * s[k] + (1 - beta_2) * g**2
            update = m[k] / (np.sqrt(s[k]) + 1e-6)
            if bias_correction:
                update *= np.sqrt(1 - beta_2 ** (step + 1)) / (1 - beta_1 ** (step + 1))
            values[k] -= steps_rate(step) * rates[k] * (update + decays[k] * values[k])
    return values, m, s


@pytest.mark.parametrize("how", ["eager", "graph", "xla"])
@pytest.mark.parametrize("bias_correction", [True, False])
def test_adamw_equals_numpy(bias_correction, how):
    rng = np.random.default_rng(0)
    # name: (learning-rate factor with layer_decay .5 and 2 layers, decay)
    expected = {
        "word_embedding/embeddings": (0.25, 0.1),
        "layer_0/attention/query/kernel": (0.5, 0.1),
        "layer_0/attention/content_bias": (0.5, 0.0),
        "layer_1/attention/segment_embedding": (1.0, 0.1),
        "layer_1/feed_forward_norm/gamma": (1.0, 0.0),
        "lm_bias": (1.0, 0.0),
        "classifier/kernel": (1.0, 0.1),
    }
    values = {name: rng.normal(size=(3, 4)).astype(np.float32) for name in expected}
    gradients = [{k: rng.normal(size=(3, 4)).astype(np.float32) for k in expected} for _ in range(5)]
    variables = [tf.Variable(value, name=name) for name, value in values.items()]
    config = OptimizerConfig(
        learning_rate=0.1, warmup_steps=2, weight_decay=0.1, layer_decay=0.5, clip_norm=2.0,
        bias_correction=bias_correction,
    )  # fmt: skip
    optimizer = build_optimizer(config, train_steps=10, n_layer=2)
    optimizer.build(variables)

    def take_steps():
        for gradient in gradients:
            optimizer.apply_gradients([(tf.constant(gradient[k]), v) for k, v in zip(values, variables)])

    optimizer.jit_compile = how == "xla"  # each update on its own, as Keras does where there is a GPU
    (take_steps if how == "eager" else tf.function(take_steps, autograph=False))()
    schedule = WarmupDecay(config.as_dict(), 10)
    factors, decays = ({k: pair[part] for k, pair in expected.items()} for part in (0, 1))
    rates = {"steps_rate": lambda step: float(schedule(step)), "bias_correction": bias_correction}
    want, m, s = numpy_adamw(values, gradients, factors, decays, clip=2.0, **rates)
    for i, (name, variable) in enumerate(zip(values, variables)):
        np.testing.assert_allclose(variable.numpy(), want[name], atol=2e-6, err_msg=name)
        np.testing.assert_allclose(optimizer._momentums[i].numpy(), m[name], atol=1e-6)
        np.testing.assert_allclose(optimizer._velocities[i].numpy(), s[name], atol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize(
    ("beta_1", "beta_2"),
    [(0.9, 0.999), (0.9, 0.9999), (0.99, 0.99999), (0.9, 0.999999), (0.999999, 0.999999)],
)
def test_early_updates_equal_float64_adam(beta_1, beta_2, dtype):
    rng = np.random.default_rng(1)
    variable = tf.Variable(tf.zeros([50], dtype), name="classifier/kernel")
    optimizer = AdamW(1.0, beta_1=beta_1, beta_2=beta_2, epsilon=1e-9, weight_decay=0.0)
    m, v, expected = np.zeros([3, 50])
    for step in range(1, 31):
        gradient = rng.uniform(0.5, 1.5, size=50).astype(np.float32)
        optimizer.apply_gradients([(tf.constant(gradient, dtype), variable)])
        m = beta_1 * m + (1 - beta_1) * gradient.astype(np.float64)
        v = beta_2 * v + (1 - beta_2) * gradient.astype(np.float64) ** 2
        expected -= m / (1 - beta_1**step) / (np.sqrt(v / (1 - beta_2**step)) + 1e-9)
        np.testing.assert_allclose(variable.numpy(), expected, rtol=2e-6, err_msg=f"{step}")


@pytest.mark.parametrize("rate", [3e-5, 1e-5, 5e-6, 2e-6])
def test_small_decays_are_not_lost(rate):
    """A product with 1 - rate * decay, in float32, gives 1.05, 1.27, 1.39 and 0 of the wanted decay."""
    start = np.random.default_rng(2).normal(size=100_000).astype(np.float32)
    weights = {decay: tf.Variable(start, name="layer_0/kernel") for decay in (0.0, 0.01)}
    gradients = [tf.random.stateless_normal(start.shape, [step, 1]) for step in range(8)]
    for decay, weight in weights.items():
        optimizer = AdamW(WarmupDecay({"learning_rate": rate}, 100), weight_decay=decay)
        optimizer.build([weight])
        step = tf.function(lambda g, o=optimizer, w=weight: o.apply_gradients([(g, w)]), autograph=False)
        for number in range(100):
            step(gradients[number % len(gradients)])
    lost = (weights[0.0].numpy() - weights[0.01].numpy()).astype(np.float64) @ start / (start @ start)
    wanted = rate * 0.01 * sum(1 - step / 100 for step in range(100))
    assert lost / wanted == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("skipped", [1, 3, 8])
def test_skipped_steps_do_not_weaken_the_next_updates(skipped):
    """Adam's first update is the learning rate, whatever was skipped before it; the schedule goes on."""
    variable = tf.Variable(tf.zeros([2]), name="a/bias")
    optimizer = AdamW(1.0, epsilon=1e-9)
    gradients = [(tf.constant([0.3, -2.0]), variable)]
    for _ in range(skipped):
        optimizer.apply_gradients(gradients, keep=tf.constant(False), updates=0)
    for updates in range(3):
        optimizer.apply_gradients(gradients, updates=tf.constant(updates, tf.int64))
        np.testing.assert_allclose(variable.numpy(), [-1 - updates, 1 + updates], rtol=1e-5)
    assert int(optimizer.iterations) == skipped + 3


def test_repeated_rows_of_a_sparse_gradient_count_once_in_the_norm():
    table = tf.Variable(tf.zeros([3, 2]), name="word_embedding/embeddings")
    rows = tf.IndexedSlices(tf.constant([[3.0, 0], [-3.0, 0], [0, 0.5]]), tf.constant([1, 1, 2]), [3, 2])
    optimizer = AdamW(0.1, global_clipnorm=1.0, weight_decay=0.0)
    optimizer.apply_gradients([(rows, table)])
    np.testing.assert_allclose(optimizer._momentums[0].numpy(), [[0, 0], [0, 0], [0, 0.05]], atol=1e-7)


@pytest.mark.parametrize("gradient", [[np.inf, 1.0], [1e25, 1.0]])
def test_gradients_of_an_infinite_norm_count_as_none(gradient):
    weights = tf.Variable([1.0, 2.0])
    optimizer = AdamW(0.1, global_clipnorm=1.0, weight_decay=0.0)
    optimizer.apply_gradients([(tf.constant([0.5, 0.5]), weights)])
    before = optimizer._momentums[0].numpy()
    optimizer.apply_gradients([(tf.constant(gradient), weights)])
    np.testing.assert_allclose(optimizer._momentums[0].numpy(), 0.9 * before, rtol=1e-6)
    assert np.all(np.isfinite(weights.numpy())) and np.all(weights.numpy() < [0.9, 1.9])


def test_a_further_variable_adds_few_operations():
    def operations(count: int) -> int:
        variables = [tf.Variable(tf.ones([2]), name=f"layer_{number}/kernel") for number in range(count)]
        optimizer = AdamW(WarmupDecay(OptimizerConfig().as_dict(), 2_000), global_clipnorm=1.0)
        optimizer.build(variables)
        step = tf.function(lambda: optimizer.apply_gradients([(tf.ones([2]), v) for v in variables]))
        return len(step.get_concrete_function().graph.get_operations())

    assert operations(20) - operations(10) <= 10 * 15  # 14 each; more if each computed the step's scalars


def test_what_decays_in_the_original_decays(golden):
    decayed = json.loads(golden("weight_decay_map.json").read_text())
    variables = json.loads(golden("tiny_ckpt_heads/variables.json").read_text())["variables"]
    shapes = {variable["name"]: variable["shape"] for variable in variables}
    flags = Arrays.of({name: np.full(shapes[name], flag) for name, flag in decayed.items()})
    theirs = {name: array.all() for name, array in names.to_canonical(flags, names.ORIGINAL).items()}
    optimizer = AdamW(weight_decay=0.1, decay_attention_biases=True)
    ours = {name: optimizer.is_decayed(f"model/{name}:0") for name in theirs}
    # A learned query, as mask_embedding is; the original calls it a bias.
    assert {name for name in ours if ours[name] != theirs[name]} == {"pooling/query"}


def pretraining_loss():
    case, settings = original.load_case("pretrain_bi_mems")
    model = original.pretrainer(memory_len=10, reuse_len=8)
    features = original.pretraining_features(case, settings)

    def loss():
        outputs = model(features)
        return tf.reduce_sum(target_losses(outputs)) / tf.reduce_sum(outputs["target_weights"])

    return model, loss


def classification_loss():
    case, _ = original.load_case("cls_imdb_last")
    model = original.head(XLNetClassifier, 2, "imdb")
    features = original.head_features(case)
    return model, lambda: tf.reduce_mean(classification_losses(model(features), case["label_ids"]))


@pytest.mark.parametrize(
    ("name", "model_and_loss"),
    [
        ("pretrain_adamw_tpu", pretraining_loss),
        ("pretrain_adamw_gpu", pretraining_loss),
        ("pretrain_adam_poly_gpu_nowarm", pretraining_loss),
        ("cls_adamw", classification_loss),
    ],
)
def test_steps_equal_the_originals(name, model_and_loss):
    fixture, settings = original.load_case(f"opt_{name}")
    flags = settings["flags"]
    tpu = settings.get("use_tpu", False)
    config = OptimizerConfig(
        learning_rate=flags["learning_rate"],
        warmup_steps=flags["warmup_steps"],
        min_lr_ratio=flags["min_lr_ratio"],
        epsilon=flags["adam_epsilon"],
        weight_decay=flags["weight_decay"],
        layer_decay=flags["lr_layer_decay_rate"],
        bias_correction=not flags["weight_decay"],
        decay_attention_biases=True,
        scale_gradients=True,
        # On GPUs the original counts repeated rows of the word embedding's gradient apart in the norm: there
        # the fixture's norm clips.
        clip_norm=flags["clip"] if tpu else 0.0,
    )
    model, loss_of = model_and_loss()
    optimizer = build_optimizer(config, flags["train_steps"], n_layer=3)
    trained = list(original.their_arrays(fixture, "step4:"))
    variables = {name: original.variables(model)[name] for name in trained}

    def assert_weights(step):
        theirs = original.their_arrays(fixture, f"step{step}:")
        for name, variable in variables.items():
            np.testing.assert_allclose(variable.numpy(), theirs[name], atol=1e-5, err_msg=f"{step} {name}")

    for step in range(4):
        with tf.GradientTape() as tape:
            loss = loss_of()
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, list(variables.values()))]
        norm = tf.linalg.global_norm(gradients)
        np.testing.assert_allclose(loss, fixture["loss"][step], atol=2e-5)
        np.testing.assert_allclose(norm, settings["gnorm_dense_per_step"][step], rtol=2e-5)
        if not config.clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, flags["clip"], use_norm=fixture["gnorm"][step])
        optimizer.apply_gradients(zip(gradients, variables.values()))
        np.testing.assert_allclose(optimizer.learning_rate, fixture["lr"][step], rtol=1e-6)
        if step >= 2:
            assert_weights(step + 1)
    slots = {"m": optimizer._momentums, "v": optimizer._velocities}
    for slot, values in slots.items():
        kind = f"adam_{slot}" if flags["weight_decay"] else {"m": "Adam", "v": "Adam_1"}[slot]
        theirs = original.their_arrays(fixture, "slot4:", f"/{kind}")
        for name, value in zip(variables, values, strict=True):
            np.testing.assert_allclose(value.numpy(), theirs[name], atol=2e-6, rtol=1e-3, err_msg=name)
