"""Models made from checkpoints have their weights, settings and labels, and work as any tf_keras model."""

import contextlib
import functools
import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import yaml
from absl import logging

from tests.helpers.models import heads, original
from tests.helpers.profiles import pairs
from tests.helpers.zipfile_fault import needs_sound_zipfile
from xlnet_tf.checkpoints import Checkpoint, names, open_checkpoint, save_checkpoint, save_model
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums
from xlnet_tf.models import loading
from xlnet_tf.models.classifier import XLNetClassifier, XLNetRegressor
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice, XLNetRanker
from xlnet_tf.models.question_answering import XLNetQuestionAnswering
from xlnet_tf.models.token_classifier import XLNetTokenClassifier
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.training.optimizer import OptimizerConfig, build_optimizer

LABELS = ["bad", "fair", "good"]
CONFIG = XLNetConfig(n_token=60, n_layer=1, d_model=32, n_head=2, d_head=16, d_inner=16)
LOSS = {"loss": tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True), "metrics": ["accuracy"]}


def invent_features(rows=32, length=10):
    """Rows whose label is told by half of their tokens; the rest is noise, and padding on the left."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, rows)
    ids = rng.integers(12, 60, [rows, length])
    ids[:, 4:9], ids[:, -1], ids[::2, :3] = 9 + labels[:, None], 3, 5
    features = {
        "input_word_ids": ids.astype(np.int32),
        "input_mask": (ids != 5).astype(np.uint8),
        "input_type_ids": np.zeros([rows, length], np.uint8),
    }
    return features, labels


def fine_tuned(model, folder, task=None, settings=None):
    """Writes a model as a run does."""
    folder.mkdir(exist_ok=True)
    save_model(model, str(folder))
    if task:
        manifest = {"kind": "examples", "task": task, "settings": {"labels": list(model.labels)}}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    if settings:
        (folder / "params.yaml").write_text(yaml.safe_dump({"task": {"model": settings}}))
    return folder


def new_model(model_class, seed=0, **options):
    tf_keras.utils.set_random_seed(seed)
    model = model_class(XLNetEncoder(CONFIG), 3, labels=LABELS, **options)
    model.build()
    return model


def predict(model):
    return model(invent_features()[0]).numpy()


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A folder of pretrained weights: an encoder without a head."""
    tf_keras.utils.set_random_seed(0)
    encoder = XLNetEncoder(CONFIG)
    encoder.build()
    save_model(encoder, folder := str(tmp_path_factory.mktemp("pretrained")))
    return folder


@pytest.fixture(scope="module")
def of_the_original(tmp_path_factory):
    """Returns a function of a format: weights that the original fine-tuned; None: as it wrote them."""
    source = original.write_fine_tuned(tmp_path_factory.mktemp("original") / "source")

    @functools.cache
    def converted(format):
        if format is None:
            return source
        save_checkpoint(open_checkpoint(source), path := str(tmp_path_factory.mktemp(format)), format)
        return path

    return converted


@pytest.fixture
def logged(monkeypatch):
    lines = []
    monkeypatch.setattr(logging, "info", lambda message, *values: lines.append(message % values))
    return lines


def test_the_encoder_of_any_checkpoint(golden):
    path = golden("tiny_ckpt_heads")
    encoder = XLNetEncoder.from_pretrained(path, dropout=0.25, memory_len=4)
    assert (encoder.dropout, encoder.memory_len) == (0.25, 4)
    arrays = open_checkpoint(path).arrays
    assert {names.canonical(v.name) for v in encoder.variables} == set(names.encoder_shapes(encoder.config))
    for variable in encoder.variables:
        np.testing.assert_array_equal(variable, arrays[names.canonical(variable.name)])


def test_a_fine_tuned_classifier_is_restored(tmp_path):
    model = new_model(XLNetClassifier, summary="mean", projection=False)
    settings = {"summary": "mean", "projection": False, "clamp_len": 3, "dropout": 0.5, "memory_len": None}
    fine_tuned(model, tmp_path, "classification", settings)
    found = XLNetClassifier.from_pretrained(tmp_path)
    assert list(found.labels) == LABELS and found.head_name == "task"
    assert (found.encoder.clamp_len, found.encoder.dropout, found.encoder.memory_len) == (3, 0.1, 0)
    found.encoder.clamp_len = -1
    np.testing.assert_array_equal(predict(found), predict(model))
    assert XLNetClassifier.from_pretrained(tmp_path, summary="last").pooling.method == "last"
    assert list(XLNetClassifier.from_pretrained(tmp_path, LABELS).labels) == LABELS


@pytest.mark.parametrize(
    ("format", "kind"),
    pairs(
        [None, "ours", "original", "hugging_face"],
        [
            (XLNetClassifier, {"summary": "first", "projection": False}),
            (XLNetClassifier, {"multi_label": True}),
            (XLNetTokenClassifier, {}),
        ],
    ),
)
def test_save_model_keeps_all_that_the_weights_do_not_tell(tmp_path, small_tokenizer, format, kind):
    """Labels, how texts are read, and how they are cleaned, whatever the weights are converted to."""
    model_class, options = kind
    tf_keras.utils.set_random_seed(0)
    encoder = XLNetEncoder(CONFIG, clamp_len=3, attention_type="uni", memory_len=7)
    model = model_class(encoder, 3, labels=["schlecht", "naja", "schön"], **options)
    model.build()
    cleaning = CleaningConfig(lower=True, keep_accents=True)
    tokenizer = XLNetTokenizer(model_proto=small_tokenizer.model_proto, cleaning=cleaning)
    save_model(model, tmp_path / "saved", tokenizer)
    path = tmp_path / "saved"
    if format:
        path = tmp_path / "other"
        save_checkpoint(open_checkpoint(tmp_path / "saved"), str(path), format)
    found = model_class.from_pretrained(path)
    expected = {**model.get_config(), "encoder": None, "name": found.name}
    assert found.get_config() | {"encoder": None} == expected
    assert (found.encoder.clamp_len, found.encoder.attention_type, found.encoder.memory_len) == (3, "uni", 0)
    assert XLNetTokenizer.from_pretrained(path).cleaning == cleaning


def test_settings_of_heads_without_labels_are_kept(tmp_path):
    span = XLNetQuestionAnswering(XLNetEncoder(CONFIG), start_top=2, end_top=3)
    choice = XLNetMultipleChoice(XLNetEncoder(CONFIG, memory_len=9, reuse_len=3), 2, segment_len=4)
    for model in (span, choice):
        model.build()
        save_model(model, tmp_path / model.name)
    found = XLNetQuestionAnswering.from_pretrained(tmp_path / "span")
    assert (found.start_top, found.end_top) == (2, 3)
    found = XLNetMultipleChoice.from_pretrained(tmp_path / "choice")
    assert found.num_choices == 2
    assert (found.segment_len, found.encoder.memory_len, found.encoder.reuse_len) == (4, 9, 3)


def test_the_number_of_choices_comes_from_the_data_of_a_run_or_is_asked_for(tmp_path):
    model = XLNetRanker(XLNetEncoder(CONFIG), 5)
    model.build()
    save_model(model, tmp_path / "run")
    (tmp_path / "run/model.json").unlink()  # as in runs of earlier versions
    manifest = {"kind": "examples", "task": "ranking", "sequences": 5, "settings": {}}
    (tmp_path / "run/manifest.json").write_text(json.dumps(manifest))
    assert XLNetRanker.from_pretrained(tmp_path / "run").num_choices == 5
    assert XLNetRanker.from_pretrained(tmp_path / "run", 2).num_choices == 2
    with pytest.raises(UserError, match=r"ranking, which XLNetRanker\.from_pretrained loads: give num_"):
        XLNetMultipleChoice.from_pretrained(tmp_path / "run")  # whose head is new
    (tmp_path / "run/manifest.json").unlink()
    with pytest.raises(UserError, match="does not say how many choices a row has: give num_choices, such as"):
        XLNetRanker.from_pretrained(tmp_path / "run")


@pytest.mark.parametrize("field", ["labels", "settings", "cleaning"])
def test_a_damaged_model_card_is_named(tmp_path, small_tokenizer, field):
    save_model(new_model(XLNetClassifier), tmp_path, small_tokenizer)
    card = tmp_path / "model.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {field: 7}))
    with pytest.raises(UserError, match=f"model.json: {field} is 7; expected"):
        XLNetClassifier.from_pretrained(tmp_path)
        XLNetTokenizer.from_pretrained(tmp_path)


def test_labels_that_nobody_named_can_still_be_given(tmp_path):
    model = XLNetClassifier(XLNetEncoder(CONFIG), 3)
    model.build()
    save_model(model, tmp_path)
    assert list(XLNetClassifier.from_pretrained(tmp_path, LABELS).labels) == LABELS


@pytest.mark.parametrize(
    ("kind", "format"), pairs(["regressor", "choice", "span", "ranker"], ["ours", "original", "hugging_face"])
)
def test_heads_without_labels_are_restored(tmp_path, kind, format):
    tf_keras.utils.set_random_seed(1)
    model = heads.HEADS[kind](XLNetEncoder(CONFIG, initializer_range=0.4))
    model.build()
    read = {"summary": "first"} if kind == "regressor" else {}
    fine_tuned(model, tmp_path / "run", settings={"start_top": 2, "end_top": 3, **read})
    save_checkpoint(open_checkpoint(tmp_path / "run"), str(tmp_path / "other"), format)
    if format == "hugging_face" and kind == "span":
        (tmp_path / "other/params.yaml").unlink()  # config.json tells as much
    choices = {"num_choices": heads.CHOICES} if kind in ("choice", "ranker") else {}
    found = type(model).from_pretrained(tmp_path / "other", **choices)
    features = heads.random_features(kind, np.random.default_rng(2), training=False)
    heads.assert_equal(heads.arrays(found(features)), heads.arrays(model(features)), rtol=0)
    found, expected = (each.get_config() | {"encoder": None} for each in (found, model))
    assert found == expected


@pytest.mark.parametrize(
    ("model_class", "arguments"),
    [(XLNetRegressor, ()), (XLNetQuestionAnswering, ()), (XLNetMultipleChoice, (4,))],
)
def test_heads_of_the_original_without_labels(golden, model_class, arguments):
    path = golden("tiny_ckpt_heads")
    model, arrays = model_class.from_pretrained(path, *arguments), open_checkpoint(path).arrays
    own = [variable for variable in model.variables if "/encoder/" not in variable.name]
    assert len(own) >= 4
    for variable in own:
        np.testing.assert_array_equal(variable, arrays[names.canonical(variable.name)])


@pytest.mark.parametrize(
    ("kind", "format"),
    pairs(
        [
            (XLNetEncoder, {}),
            (XLNetClassifier, {"head_name": "imdb"}),
            (XLNetClassifier, {"head_name": "new", "labels": LABELS}),
            (XLNetClassifier, {"head_name": "mnli_matched", "summary": "attn"}),
            (XLNetRegressor, {}),
            (XLNetQuestionAnswering, {}),
            (XLNetMultipleChoice, {"num_choices": 4}),
            (XLNetRanker, {"num_choices": 2}),
            (XLNetTokenClassifier, {"labels": LABELS}),
        ],
        [None, "ours", "original", "hugging_face"],
    ),
)
def test_checkpoints_that_the_original_fine_tuned_have_no_query_stream(of_the_original, golden, kind, format):
    model_class, options = kind
    paths = of_the_original(format), golden("tiny_ckpt_heads")
    found, expected = (model_class.from_pretrained(path, **options) for path in paths)
    unread = (names.QUERY_START, *(f"{part}/" for part in ("classification_new", "ranking", "tagging")))
    for ours, theirs in zip(found.variables, expected.variables, strict=True):
        if not names.canonical(ours.name).startswith(unread):
            np.testing.assert_array_equal(ours, theirs, err_msg=ours.name)


@pytest.mark.parametrize(
    ("model_class", "options", "part"),
    [
        (XLNetRegressor, {"head_name": "sts-b"}, "regression_sts-b"),
        (XLNetQuestionAnswering, {"start_top": 3}, "span"),
        (XLNetMultipleChoice, {"num_choices": 4, "segment_len": 2}, "choice"),
        (XLNetRanker, {"num_choices": 2, "summary": "mean"}, "ranking"),
    ],
)
def test_new_heads_without_labels_say_so(pretrained, logged, model_class, options, part):
    model = model_class.from_pretrained(pretrained, dropout=0.2, **options)
    assert logged[-1].endswith(f"has no head {part}: a new one begins with random weights")
    assert model.encoder.dropout == 0.2
    assert model.get_config().items() >= options.items()
    np.testing.assert_array_equal(
        model.encoder.word_embedding, open_checkpoint(pretrained).arrays["word_embedding/embeddings"]
    )
    with pytest.raises(UserError, match="unknown option labels"):
        model_class.from_pretrained(pretrained, labels=LABELS, **options)


@pytest.mark.parametrize("memory_len", [0, 3])
def test_segments_of_a_run_are_read_as_they_were(tmp_path, memory_len):
    encoder = XLNetEncoder(CONFIG, memory_len=memory_len or 5)
    model = XLNetClassifier(encoder, 3, segment_len=5)
    model.build()
    fine_tuned(model, tmp_path, settings={"segment_len": 5, "memory_len": memory_len})
    np.testing.assert_array_equal(predict(XLNetClassifier.from_pretrained(tmp_path)), predict(model))


def test_heads_of_the_original(golden):
    path = golden("tiny_ckpt_heads")
    model = XLNetClassifier.from_pretrained(path, head_name="mnli_matched")
    assert list(model.labels) == ["0", "1", "2"]
    kernel = next(v for v in model.variables if "classification_mnli_matched/logits/kernel" in v.name)
    np.testing.assert_array_equal(kernel, open_checkpoint(path).arrays[names.canonical(kernel.name)])
    imdb = XLNetClassifier.from_pretrained(path, ["no", "yes"], head_name="imdb")
    assert imdb.labels == ["no", "yes"]
    with pytest.raises(UserError, match="several heads for .*: give head_name, one of imdb, mnli"):
        XLNetClassifier.from_pretrained(path, ["no", "yes"])


@pytest.mark.parametrize(("named", "pooling"), [(True, "mean"), (False, "last")])
def test_a_classifier_of_hugging_face(tmp_path, named, pooling):
    model = new_model(XLNetClassifier)
    fine_tuned(model, tmp_path / "ours")
    save_checkpoint(open_checkpoint(tmp_path / "ours"), str(tmp_path / "theirs"), "hugging_face")
    checksums.remove(tmp_path / "theirs")
    file = tmp_path / "theirs/config.json"
    id2label = {str(index): label if named else f"LABEL_{index}" for index, label in enumerate(LABELS)}
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"id2label": id2label, "summary_type": pooling})
    )
    found = XLNetClassifier.from_pretrained(tmp_path / "theirs")
    assert list(found.labels) == (LABELS if named else ["0", "1", "2"])
    assert (found.pooling.method, found.pooling.pool_padding) == (pooling, False)
    if pooling == "last":
        np.testing.assert_array_equal(predict(found), predict(model))
    other = ["x", "y", "z"]
    if named:
        with pytest.raises(UserError, match="has the labels bad, fair, good"):
            XLNetClassifier.from_pretrained(tmp_path / "theirs", other)
    else:
        assert list(XLNetClassifier.from_pretrained(tmp_path / "theirs", other).labels) == other


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id2label": {"0": "a", "1": "b", "3": "c"}}, "id2label is .*; expected the numbers from 0 on"),
        ({"id2label": {"0": "a", "1": "b"}}, "has 3 classes, and the files next to it name 2: a, b"),
        ({"problem_type": "ranking"}, "problem_type is 'ranking'; expected one of regression, single_label_"),
        ({"problem_type": "regression"}, "but regression_task, which XLNetRegressor.from_pretrained loads"),
    ],
)
def test_a_config_of_hugging_face_that_does_not_fit_its_head(tmp_path, fields, message):
    fine_tuned(new_model(XLNetClassifier), tmp_path / "ours")
    save_checkpoint(open_checkpoint(tmp_path / "ours"), str(tmp_path / "theirs"), "hugging_face")
    checksums.remove(tmp_path / "theirs")
    file = tmp_path / "theirs/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    with pytest.raises(UserError, match=message):
        XLNetClassifier.from_pretrained(tmp_path / "theirs")


def test_labels_that_do_not_fit_the_head_are_not_converted_silently(tmp_path, caplog):
    fine_tuned(new_model(XLNetClassifier), tmp_path / "ours")
    card = tmp_path / "ours/model.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"labels": ["bad", "good"]}))
    checksums.remove(tmp_path / "ours")
    save_checkpoint(open_checkpoint(tmp_path / "ours"), str(tmp_path / "theirs"), "hugging_face")
    said = "the head classification_task has 3 classes, and the files next to it name 2: config.json gets no"
    assert said in caplog.text
    assert "id2label" not in json.loads((tmp_path / "theirs/config.json").read_text())


@pytest.mark.parametrize("format", [None, "ours"])
def test_what_a_checkpoint_lacks_is_as_random_as_if_nothing_were_loaded(of_the_original, format, monkeypatch):
    """A new head, and the start of the query stream: no random numbers are drawn for the rest."""

    def weights():
        tf_keras.utils.set_random_seed(7)
        options = {"head_name": "new", "summary": "attn"}
        model = XLNetClassifier.from_pretrained(of_the_original(format), LABELS, **options)
        return [*model.get_weights(), tf_keras.initializers.RandomNormal()([3])]

    found = weights()
    monkeypatch.setattr(loading, "building_from", lambda _: contextlib.nullcontext(()))
    for value, expected in zip(found, weights(), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_a_folder_of_another_task_says_which_class_loads_it(tmp_path, logged):
    fine_tuned(new_model(XLNetTokenClassifier), tmp_path)
    instead = "but tagging, which XLNetTokenClassifier.from_pretrained loads"
    for model_class, needs in ((XLNetClassifier, r"labels=\[...\]"), (XLNetMultipleChoice, "num_choices")):
        with pytest.raises(UserError, match=f"{instead}: give {needs}"):
            model_class.from_pretrained(tmp_path)
    for model_class in (XLNetRegressor, XLNetQuestionAnswering):
        model_class.from_pretrained(tmp_path)
        assert f"{instead}: a new one begins with random weights" in logged[-1]


def test_a_new_head_next_to_an_old_one(tmp_path, logged):
    """The projection below the logits is taken over; the old logits are left aside."""
    old = new_model(XLNetClassifier)
    fine_tuned(old, tmp_path, "classification")
    new = XLNetClassifier.from_pretrained(tmp_path, ["a", "b"], head_name="other")
    assert "no head classification_other" in logged[-1]
    np.testing.assert_array_equal(new.pooling.projection.kernel, old.pooling.projection.kernel)
    assert new.dense.kernel.shape == [CONFIG.d_model, 2]


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (None, {}, r"no head classification_task: give labels=\[...\]"),
        ("good", {}, "labels is 'good'; expected a list"),
        (LABELS, {"dropout": 2.0}, "dropout is 2.0; expected a number from 0 to less than 1"),
        (["good"], {}, "expected at least 2"),
        (["good", "good"], {}, "each of them once"),
        (LABELS, {"dropuot": 0.2}, "unknown option dropuot; expected some of .*dropout.*summary"),
        (LABELS, {"summary": "best"}, "the summary is 'best'"),
        (LABELS, {"head_name": "a/b"}, "head_name is 'a/b'"),
    ],
)
def test_wrong_arguments(pretrained, labels, options, message):
    with pytest.raises(UserError, match=message):
        XLNetClassifier.from_pretrained(pretrained, labels, **options)


def test_wrong_checkpoints(tmp_path, pretrained):
    model = new_model(XLNetClassifier)
    fine_tuned(model, tmp_path)
    with pytest.raises(UserError, match="has 3 classes; the given labels are no, yes"):
        XLNetClassifier.from_pretrained(tmp_path, ["no", "yes"])
    arrays = dict(open_checkpoint(tmp_path).arrays.entries)
    del arrays["classification_task/logits/bias"]
    save_checkpoint(Checkpoint("", "ours", Arrays(arrays), CONFIG), str(tmp_path / "no_bias"), "ours")
    with pytest.raises(UserError, match="classification_task/logits/bias has the shape None; expected"):
        XLNetClassifier.from_pretrained(tmp_path / "no_bias")
    (tmp_path / "xlnet_config.json").unlink()
    with pytest.raises(UserError, match="neither xlnet_config.json nor config.json"):
        XLNetEncoder.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        XLNetEncoder.from_pretrained(tmp_path / "nowhere")
    arrays = dict(open_checkpoint(pretrained).arrays.entries)
    del arrays["word_embedding/embeddings"]
    (tmp_path / "part").mkdir()
    part = Checkpoint(pretrained, "ours", Arrays(arrays), CONFIG)
    with pytest.raises(UserError, match="word_embedding"):
        save_checkpoint(part, str(tmp_path / "part"), "ours")


def test_labels_are_as_many_as_classes():
    for model_class in (XLNetClassifier, XLNetTokenClassifier):
        with pytest.raises(UserError, match="3 labels for 2 classes"):
            model_class(XLNetEncoder(CONFIG), 2, labels=LABELS)


def optimizers():
    ours = OptimizerConfig(learning_rate=1e-2, warmup_steps=2, layer_decay=0.9)
    return {"adam": tf_keras.optimizers.Adam(3e-3), "ours": build_optimizer(ours, 100, CONFIG.n_layer)}


def test_answers_may_be_lists():
    """A list stands for the answers of several outputs in tf_keras."""
    features, labels = invent_features(rows=8)
    found = []
    for answers in (labels, labels.tolist(), tuple(labels)):
        model = new_model(XLNetClassifier)
        model.compile(tf_keras.optimizers.SGD(0.1), run_eagerly=True, **LOSS)
        fitted = model.fit(features, answers, verbose=0, validation_data=(features, answers))
        found.append([fitted.history["val_loss"], model.evaluate(features, answers, verbose=0)])
    assert found[0] == found[1] == found[2]
    for answers in (["bad"] * 8, np.array(["bad"] * 8)):
        with pytest.raises(UserError, match="y has 'bad'; expected numbers"):
            model.fit(features, answers)
    with pytest.raises(UserError, match="differ in length; expected lists of one length"):
        model.fit(features, [[1], [1, 2]] * 4)


@needs_sound_zipfile
@pytest.mark.integration
@pytest.mark.parametrize("optimizer", ["adam", "ours"])
def test_fit_learns_and_resumes_from_a_saved_model(pretrained, tmp_path, optimizer):
    """compile, fit with callbacks, evaluate, predict and save are tf_keras' own."""
    features, labels = invent_features()
    tf_keras.utils.set_random_seed(3)
    model = XLNetClassifier.from_pretrained(pretrained, LABELS)
    model.compile(optimizers()[optimizer], **LOSS)
    path = str(tmp_path / "best.keras")
    callbacks = [
        tf_keras.callbacks.ModelCheckpoint(path, monitor="val_accuracy", mode="max", save_best_only=True),
        tf_keras.callbacks.EarlyStopping("val_loss", patience=10, restore_best_weights=True),
    ]
    options = {"validation_data": (features, labels), "callbacks": callbacks, "verbose": 0}
    model.fit(features, labels, batch_size=16, epochs=30, **options)
    best = tf_keras.models.load_model(path)
    assert isinstance(best, XLNetClassifier) and list(best.labels) == LABELS
    assert best.evaluate(features, labels, verbose=0)[1] > 0.9
    assert best.optimizer.iterations.numpy() > 0
    best.fit(features, labels, verbose=0)


@pytest.mark.integration
def test_formats_of_tf_keras(pretrained, tmp_path):
    features, labels = invent_features()
    model = XLNetClassifier.from_pretrained(pretrained, LABELS)
    model.compile("adam", **LOSS)
    model.fit(features, labels, verbose=0)
    model.save(tmp_path / "saved_model")
    restored = tf_keras.models.load_model(tmp_path / "saved_model")
    assert isinstance(restored, XLNetClassifier)
    found, expected = (each.evaluate(features, labels, verbose=0) for each in (restored, model))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    logits = restored.predict(features, verbose=0)
    np.testing.assert_allclose(logits, predict(model), atol=1e-5)
    model.save_weights(tmp_path / "weights")
    other = XLNetClassifier.from_pretrained(pretrained, LABELS)
    other.load_weights(tmp_path / "weights").expect_partial()
    np.testing.assert_array_equal(predict(other), predict(model))


@pytest.mark.integration
def test_data_from_tf_data(pretrained):
    features, labels = invent_features()
    model = XLNetClassifier.from_pretrained(pretrained, LABELS)
    model.compile("adam", **LOSS)
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(8)
    model.fit(dataset.shuffle(4).repeat(), steps_per_epoch=2, validation_data=dataset, verbose=0)
    found, expected = (model.evaluate(*data, verbose=0) for data in ([dataset], [features, labels]))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(model.predict(dataset, verbose=0), predict(model), atol=1e-5)


def test_an_encoder_inside_a_model_of_the_users(pretrained):
    features, labels = invent_features()
    encoder = XLNetEncoder.from_pretrained(pretrained)
    inputs = {
        name: tf_keras.Input(array.shape[1:], dtype=array.dtype, name=name)
        for name, array in features.items()
    }
    mean = tf.reduce_mean(encoder(inputs)["sequence_output"], axis=1)
    model = tf_keras.Model(inputs, tf_keras.layers.Dense(3)(mean))
    model.compile("adam", **LOSS)
    before = encoder.word_embedding.numpy()
    model.fit(features, labels, verbose=0)
    assert np.abs(encoder.word_embedding.numpy() - before).max() > 0


def test_labels_of_a_new_model_are_a_list_as_well():
    encoder = XLNetEncoder(CONFIG)
    for labels in ("ab", {0: "a", 1: "b"}, {"a", "b"}):
        with pytest.raises(UserError, match="labels is .*; expected a list"):
            XLNetClassifier(encoder, 2, labels=labels)
    assert XLNetTokenClassifier(encoder, 2, labels=dict.fromkeys(["a", "b"]).keys()).labels == ["a", "b"]


def test_what_is_no_encoder_and_no_config_is_named():
    with pytest.raises(UserError, match="the encoder is XLNetConfig.*; expected an XLNetEncoder"):
        XLNetClassifier(CONFIG, 2)
    with pytest.raises(UserError, match="config is 'base'; expected an XLNetConfig"):
        XLNetEncoder("base")
