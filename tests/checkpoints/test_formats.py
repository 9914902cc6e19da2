"""Checkpoints of every format become every other, bit for bit, and what does not fit is said."""

import dataclasses
import functools
import itertools
import json
import math
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from run_scripts.convert_checkpoint import convert
from tests.helpers.commands import run_in_fork
from tests.helpers.full_disk import files_of_at_most
from tests.helpers.models import original
from tests.helpers.records import torch_writer
from xlnet_tf.checkpoints import (
    FORMATS,
    Checkpoint,
    check,
    load_into,
    names,
    open_checkpoint,
    read_architecture,
    save_checkpoint,
    save_model,
    tensorflow_files,
)
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.checkpoints.model_card import ModelCard
from xlnet_tf.checkpoints.safetensors_file import read_safetensors
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.hub import checksums
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.serving.sources import open_served
from xlnet_tf.training.optimizer import OptimizerConfig, build_optimizer

CONFIGS = {
    "micro": XLNetConfig.preset("micro"),
    "tied": XLNetConfig.preset("micro", untie_r=False, n_layer=3),
    "odd": XLNetConfig(
        n_token=31, n_layer=1, d_model=18, n_head=3, d_head=6, d_inner=7, ff_activation="relu"
    ),
    "exact_gelu": XLNetConfig.preset("micro", ff_activation="gelu_erf"),
}


def random_checkpoint(config: XLNetConfig, heads=("lm_bias",)) -> Checkpoint:
    """A checkpoint of random weights, with the given heads' variables; 5 classes where a head has classes."""
    rng = np.random.default_rng(0)
    shapes = names.encoder_shapes(config) | {name: names.head_shape(name, config) for name in heads}
    shapes = {name: tuple(size or 5 for size in shape) for name, shape in shapes.items()}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return Checkpoint("memory/random", "ours", Arrays.of(arrays), config)


def save_unlisted(checkpoint: Checkpoint, folder, format: str):
    """Writes a checkpoint without checksums, as those from elsewhere come."""
    save_checkpoint(checkpoint, str(folder), format)
    checksums.remove(folder)


def assert_equal(found: Checkpoint, expected: Checkpoint):
    assert found.arrays.shapes == expected.arrays.shapes
    for name in expected.arrays:
        assert found.arrays[name].tobytes() == expected.arrays[name].tobytes(), name


def pretrainer(config: XLNetConfig) -> XLNetPretrainer:
    model = XLNetPretrainer(XLNetEncoder(config, dropout=0.0, attention_dropout=0.0))
    model.build()
    return model


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("first", "second"), itertools.product(FORMATS, FORMATS))
def test_round_trips_are_bit_equal(tmp_path, name, first, second):
    checkpoint = random_checkpoint(CONFIGS[name])
    for step, format in enumerate((first, second, first)):
        save_checkpoint(checkpoint, str(tmp_path / str(step)), format)
        found = open_checkpoint(str(tmp_path / str(step)))
        assert found.format == format
        assert_equal(found, checkpoint)
        if "original" not in (first, second):  # it has one form of gelu only
            assert found.config == CONFIGS[name]
        checkpoint = found


@pytest.mark.parametrize("format", FORMATS)
def test_all_heads_of_the_original_survive(tmp_path, format):
    heads = open_checkpoint(str(original.GOLDEN / "tiny_ckpt_heads"))
    assert check(heads).complete and heads.stripped == ("global_step",)
    save_checkpoint(heads, str(tmp_path / "there"), format)
    there = open_checkpoint(str(tmp_path / "there"))
    assert_equal(there, heads)
    save_checkpoint(there, str(tmp_path / "back"), "original")
    reader = tf.train.load_checkpoint(str(original.GOLDEN / "tiny_ckpt_heads" / "xlnet_model.ckpt"))
    back = tf.train.load_checkpoint(str(tmp_path / "back" / "xlnet_model.ckpt"))
    shapes = reader.get_variable_to_shape_map()
    assert len(shapes) == 75
    assert back.get_variable_to_shape_map() == {n: s for n, s in shapes.items() if n != "global_step"}
    for name in back.get_variable_to_shape_map():
        assert back.get_tensor(name).tobytes() == reader.get_tensor(name).tobytes(), name


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_checkpoints_that_the_original_fine_tuned_are_converted(tmp_path, format, bias):
    """They lack the vector that the query stream starts from, and may have the language model's bias."""
    dropped = ["model/transformer/mask_emb/mask_emb"] + ["model/lm_loss/bias"] * (not bias)
    source = open_checkpoint(original.write_fine_tuned(tmp_path / "source", dropped))
    assert check(source).complete and list(check(source).new) == ["mask_embedding"]
    text = convert(str(tmp_path / "source"), str(tmp_path / "there"), format, None, strict=True)
    assert ("note: it has no mask_emb" in text) == (format == "hugging_face")
    there = open_checkpoint(tmp_path / "there")
    assert_equal(there, source)
    save_checkpoint(there, str(tmp_path / "back"), "original")
    assert_equal(open_checkpoint(tmp_path / "back"), source)


@pytest.mark.parametrize("bias", [True, False])
def test_a_language_model_needs_more_than_a_fine_tuned_checkpoint(tmp_path, bias):
    dropped = ["model/transformer/mask_emb/mask_emb"] + ["model/lm_loss/bias"] * (not bias)
    path = original.write_fine_tuned(tmp_path / "source", dropped)
    for model in (XLNetPretrainer, XLNetLanguageModel):
        with pytest.raises(UserError, match=r"mask_embedding.*query stream.*pretrained weights") as error:
            model.from_pretrained(path)
        assert ("lm_bias, the language-model head" in str(error.value)) != bias
        assert "but has choice, classification_imdb, " in str(error.value)


def test_the_encoder_alone_needs_no_query_stream(tmp_path):
    saved = [
        name for name, _ in tf.train.list_variables(original.GOLDEN / "tiny_ckpt_heads/xlnet_model.ckpt")
    ]
    dropped = [name for name in saved if not name.startswith("model/transformer") or "mask_emb" in name]
    source = original.write_fine_tuned(tmp_path / "source", dropped)
    convert(str(source), str(tmp_path / "there"), "original", None, strict=True)
    assert_equal(open_checkpoint(tmp_path / "there"), open_checkpoint(source))
    XLNetEncoder.from_pretrained(tmp_path / "there")


def test_pretrained_weights_without_the_query_stream_are_damaged(tmp_path):
    base = random_checkpoint(CONFIGS["micro"])
    arrays = {name: base.arrays[name] for name in base.arrays if name != "mask_embedding"}
    with pytest.raises(UserError, match="1 missing: mask_embedding"):
        save_checkpoint(dataclasses.replace(base, arrays=Arrays.of(arrays)), str(tmp_path), "ours")


def test_an_array_of_too_many_dimensions_is_refused(tmp_path):
    header = {"w": {"dtype": "F32", "shape": [1] * 1000, "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    with pytest.raises(UserError, match="model.safetensors: 'w' has 1,000 dimensions; expected at most 8"):
        open_checkpoint(str(path))


@pytest.mark.parametrize("name", ["model.keras", "model.h5", "model.weights.h5", "saved_model.pb"])
@pytest.mark.parametrize("in_folder", [True, False])
def test_what_keras_saved_is_called_so(tmp_path, name, in_folder):
    (tmp_path / name).write_bytes(b"PK")
    path = str(tmp_path if in_folder else tmp_path / name)
    said = "a SavedModel, which predict and" if name.endswith("pb") else "load it with .*save_model"
    for use in (
        lambda: open_checkpoint(path),
        lambda: convert(path, None, "ours", None, strict=True),
        lambda: XLNetLanguageModel.from_pretrained(path),
        lambda: open_served(path, head="classification").load(),
    ):
        with pytest.raises(UserError, match=said):
            use()


@pytest.mark.parametrize("path", ["served", "served/", "served/10", "served/10/saved_model.pb"])
def test_an_exported_model_says_what_it_was_exported_from(tmp_path, path):
    for version in ("10", "9", "2"):
        (tmp_path / "served" / version).mkdir(parents=True)
        (tmp_path / "served" / version / "saved_model.pb").write_bytes(b"PK")
        ModelCard(origin={"exported_from": f"runs/{version}"}).write(str(tmp_path / "served" / version))
    message = "a SavedModel, which predict and serve can ask, .*: give what it was exported from, runs/10"
    with pytest.raises(UserError, match=message):
        open_checkpoint(f"{tmp_path}/{path}")


LOGITS_PROJ = {"logits_proj.weight", "logits_proj.bias"}


@pytest.mark.parametrize(
    ("heads", "architecture", "theirs"),
    [
        ([], "Model", set()),
        (["lm_bias"], "LMHeadModel", {"lm_loss.bias"}),
        (["classification_imdb/logits"], "ForSequenceClassification", LOGITS_PROJ),
        (["regression_sts-b/logits"], "ForSequenceClassification", LOGITS_PROJ),
        (["choice/logits"], "ForMultipleChoice", LOGITS_PROJ),
        (["tagging/logits"], "ForTokenClassification", {"classifier.weight", "classifier.bias"}),
        (["span_independent/logits"], "ForQuestionAnsweringSimple", {"qa_outputs.weight", "qa_outputs.bias"}),
        (
            ["summary/projection", "classification_imdb/logits"],
            "ForSequenceClassification",
            {"sequence_summary.summary.weight", "sequence_summary.summary.bias", *LOGITS_PROJ},
        ),
    ],
)
def test_hugging_face_names_its_heads(tmp_path, heads, architecture, theirs):
    pairs = [[head] if head == "lm_bias" else [f"{head}/kernel", f"{head}/bias"] for head in heads]
    checkpoint = random_checkpoint(CONFIGS["micro"], sum(pairs, []))
    save_checkpoint(checkpoint, str(tmp_path), "hugging_face")
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == [f"XLNet{architecture}"]
    file = load_file(tmp_path / "model.safetensors")
    assert {name for name in file if not name.startswith("transformer.")} == theirs
    if "classifier.weight" in file:
        assert file["classifier.weight"].shape == (5, 32) and config["num_labels"] == 5
    assert_equal(open_checkpoint(str(tmp_path)), checkpoint)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("format", ["original", "hugging_face"])
def test_every_variable_of_the_encoder_is_one_of_the_format(tmp_path, format, name):
    """Renamed or folded into others: no file has one of our names, which no model of the format reads."""
    config = CONFIGS[name]
    if format == "hugging_face" and config.n_head * config.d_head != config.d_model:
        pytest.skip("Hugging Face has no such architecture")
    encoder = XLNetEncoder(config)
    encoder.build()
    arrays = Arrays.of({names.canonical(v.name): v.numpy() for v in encoder.variables})
    assert arrays.shapes == names.encoder_shapes(config)
    save_checkpoint(Checkpoint("", "ours", arrays, config), str(tmp_path), format)
    if format == "original":
        written = tf.train.load_checkpoint(str(tmp_path / "xlnet_model.ckpt")).get_variable_to_shape_map()
    else:
        written = read_safetensors(str(tmp_path / "model.safetensors"))
    assert not [name for name in written if names.known(name)]
    assert open_checkpoint(tmp_path).arrays.shapes == arrays.shapes


@pytest.mark.parametrize("format", ["original", "hugging_face"])
def test_a_variable_of_the_encoder_that_a_format_lacks_is_refused(tmp_path, monkeypatch, format):
    gate = names._rows((("attention/gate", "N H", None, None),), "layer_{i}/")
    monkeypatch.setattr(names, "_ENCODER_ROWS", names._ENCODER_ROWS + gate)
    for cached in (names._all_rows, names._row):
        monkeypatch.setattr(names, cached.__name__, functools.cache(cached.__wrapped__))
    checkpoint = random_checkpoint(CONFIGS["micro"])
    assert "layer_1/attention/gate" in checkpoint.arrays
    save_checkpoint(checkpoint, str(tmp_path / "ours"), "ours")
    with pytest.raises(UserError, match="the encoder has layer_0/attention/gate, which .* does not: its mod"):
        save_checkpoint(checkpoint, str(tmp_path / "other"), format)
    assert not list((tmp_path / "other").glob("*"))


@pytest.mark.parametrize("format", ["original", "hugging_face"])
def test_a_head_that_a_format_lacks_is_noted(tmp_path, format):
    variables = ["ranking/logits/kernel", "ranking/logits/bias"]
    save_checkpoint(random_checkpoint(CONFIGS["micro"], variables), str(tmp_path / "run"), "ours")
    text = convert(str(tmp_path / "run"), str(tmp_path / format), format, None, strict=True)
    assert "have no ranking: they leave" in text or "has no ranking: it leaves these weights out" in text


def test_a_classifier_of_one_class_stays_one(tmp_path):
    heads = {"classification_odd/logits/kernel": (32, 1), "classification_odd/logits/bias": (1,)}
    base = random_checkpoint(CONFIGS["micro"], [])
    arrays = dict(base.arrays) | {name: np.ones(shape, np.float32) for name, shape in heads.items()}
    save_checkpoint(dataclasses.replace(base, arrays=Arrays.of(arrays)), str(tmp_path), "hugging_face")
    assert set(heads) < set(open_checkpoint(str(tmp_path)).arrays)


@pytest.mark.parametrize("format", FORMATS)
def test_golden_values_through_every_format(tmp_path, format):
    case, settings = original.load_case("pretrain_bi_mems")
    save_checkpoint(open_checkpoint(str(original.GOLDEN / "tiny_ckpt")), str(tmp_path / "1"), "hugging_face")
    save_checkpoint(open_checkpoint(str(tmp_path / "1")), str(tmp_path / "2"), format)
    checkpoint = open_checkpoint(str(tmp_path / "2"))
    assert checkpoint.config == XLNetConfig.from_json_file(
        original.GOLDEN / "tiny_ckpt" / "xlnet_config.json"
    )
    options = {"memory_len": 10, "reuse_len": 8, "uniform_when_blind": True}
    encoder = XLNetEncoder(checkpoint.config, dropout=0.0, attention_dropout=0.0, **options)
    model = XLNetPretrainer(encoder)
    model.build()
    assert load_into(model, checkpoint).complete
    features = original.pretraining_features(case, settings)
    outputs = model(features)
    np.testing.assert_allclose(
        encoder(features)["query_output"], case["output"].transpose(1, 0, 2), atol=2e-5, rtol=1e-5
    )
    assert outputs["logits"].shape == (*case["bf_target"].shape, 200)


def test_large_weights_of_the_original_are_written_in_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(tensorflow_files, "_SHARD_BYTES", 20_000)
    checkpoint = random_checkpoint(CONFIGS["micro"])
    save_checkpoint(checkpoint, str(tmp_path), "original")
    assert len(list(tmp_path.glob("xlnet_model.ckpt.data-*-of-*"))) > 2
    assert not list(tmp_path.glob("*part*"))
    assert_equal(open_checkpoint(str(tmp_path)), checkpoint)


@pytest.mark.parametrize("is_run", [True, False])
def test_a_compiled_models_optimizer_is_left_out(tmp_path, is_run):
    """Its slots are named after the variables, and must not be taken for them."""
    model = pretrainer(CONFIGS["micro"])
    optimizer = build_optimizer(OptimizerConfig(), 10, n_layer=2)
    model.compile(optimizer=optimizer)
    optimizer.build(model.trainable_variables)
    saved = tf.train.Checkpoint(model=model) if is_run else tf.train.Checkpoint(model)
    (tmp_path / "xlnet_config.json").write_text(CONFIGS["micro"].to_json())
    found = open_checkpoint(saved.write(str(tmp_path / "ckpt")))
    assert check(found).complete and len(found.stripped) > len(model.variables)
    for variable in model.variables:
        np.testing.assert_array_equal(found.arrays[names.canonical(variable.name)], variable.numpy())


def test_a_native_run_without_its_optimizer(tmp_path):
    model = pretrainer(CONFIGS["tied"])
    optimizer = build_optimizer(OptimizerConfig(), 10, n_layer=3)
    optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, global_step=tf.Variable(7))
    tf.train.CheckpointManager(checkpoint, str(tmp_path / "run"), 1).save()
    (tmp_path / "run" / "xlnet_config.json").write_text(CONFIGS["tied"].to_json())
    opened = open_checkpoint(str(tmp_path / "run"))
    assert opened.format == "ours" and check(opened).complete
    scopes = {name.partition("/")[0] for name in opened.stripped}
    assert scopes == {"global_step", "optimizer", "save_counter"}
    other = pretrainer(CONFIGS["tied"])
    coverage = load_into(other, str(tmp_path / "run"))
    assert coverage.complete and len(coverage.loaded) == len(model.variables)
    for ours, theirs in zip(other.variables, model.variables):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    save_checkpoint(opened, str(tmp_path / "original"), "original")
    assert_equal(open_checkpoint(str(tmp_path / "original")), opened)


def test_optimizer_slots_of_the_original_are_stripped(tmp_path):
    plain = open_checkpoint(str(original.GOLDEN / "tiny_ckpt"))
    reader = tf.train.load_checkpoint(plain.path)
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    slots = {f"{name}/{slot}": value * 0 for name, value in tensors.items() if name != "global_step"
             for slot in ("adam_m", "adam_v", "Adam", "Adam_1")}  # fmt: skip
    tensors |= slots | {"beta1_power": np.float32(0.9), "beta2_power": np.float32(0.9)}
    prefix = str(tmp_path / "model.ckpt-9")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(map(tf.constant, tensors.values())),
    )
    found = open_checkpoint(prefix, str(original.GOLDEN / "tiny_ckpt/xlnet_config.json"))
    assert len(found.stripped) == len(slots) + 3
    assert_equal(found, plain)


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("untied", [True, False])
def test_pytorch_bins_are_read(tmp_path, legacy, untied):
    config = CONFIGS["micro" if untied else "tied"]
    checkpoint = random_checkpoint(config)
    save_checkpoint(checkpoint, str(tmp_path), "hugging_face")
    arrays = dict(load_file(tmp_path / "model.safetensors"))
    arrays["lm_loss.weight"] = arrays["transformer.word_embedding.weight"]
    (tmp_path / "model.safetensors").unlink()
    torch_writer.write(tmp_path / "pytorch_model.bin", arrays, legacy)
    found = open_checkpoint(str(tmp_path))
    assert found.config == config
    assert_equal(found, checkpoint)


def test_other_shapes_that_hugging_face_files_have(tmp_path):
    """No prefix, the embedding under the language model's name, split in two files, half precision."""
    checkpoint = random_checkpoint(CONFIGS["micro"])
    save_checkpoint(checkpoint, str(tmp_path), "hugging_face")
    arrays = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    arrays = {name.removeprefix("transformer."): array.astype(np.float16) for name, array in arrays.items()}
    arrays["lm_loss.weight"] = arrays.pop("word_embedding.weight")
    files = {
        "a.safetensors": dict(list(arrays.items())[::2]),
        "b.safetensors": dict(list(arrays.items())[1::2]),
    }
    for file, part in files.items():
        save_file(part, tmp_path / file)
    weight_map = {name: file for file, part in files.items() for name in part}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    found = open_checkpoint(str(tmp_path))
    assert found.arrays.shapes == checkpoint.arrays.shapes
    for name, array in checkpoint.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array.astype(np.float16), err_msg=name)


def test_untied_in_all_but_name(tmp_path):
    """Hugging Face's layers have biases of their own even where its config says otherwise."""
    checkpoint = random_checkpoint(CONFIGS["micro"])
    save_unlisted(checkpoint, tmp_path, "hugging_face")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"untie_r": False}))
    found = open_checkpoint(str(tmp_path))
    assert found.config.untie_r
    assert_equal(found, checkpoint)


def test_a_language_model_with_an_own_output_embedding_is_refused(tmp_path):
    save_unlisted(random_checkpoint(CONFIGS["micro"]), tmp_path, "hugging_face")
    arrays = load_file(tmp_path / "model.safetensors")
    arrays["lm_loss.weight"] = arrays["transformer.word_embedding.weight"] + 1
    save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="lm_loss.weight differs from transformer.word_embedding.weight"):
        open_checkpoint(str(tmp_path))


def test_real_hugging_face_folder(shared):
    checkpoint = open_checkpoint(str(shared("data/tiny_hf_xlnet")))
    assert (checkpoint.config.n_layer, checkpoint.config.d_head) == (3, 2) and check(checkpoint).complete
    encoder = XLNetEncoder(checkpoint.config)
    encoder.build()
    assert load_into(encoder, checkpoint).complete


def test_configs_of_base_agree(shared):
    """Hugging Face's config of the released Base becomes the original's."""
    config = read_architecture(shared("data/xlnet_cased/hf_xlnet-base-cased.config.json"))
    assert config == XLNetConfig.preset("base", ff_activation="gelu_erf")  # what Hugging Face computes


def num_parameters(config):
    """Counts the weights of the encoder and the bias of the language model, as the paper does."""
    return config.n_token + sum(map(math.prod, names.encoder_shapes(config).values()))


def test_parameter_counts():
    assert num_parameters(XLNetConfig.preset("base")) == 116_750_336
    assert num_parameters(XLNetConfig.preset("large")) == 360_300_800


def test_the_table_has_the_models_variables_and_no_others():
    for config in (*CONFIGS.values(), XLNetConfig.preset("large")):
        with tf.Graph().as_default():  # variables without memory
            model = pretrainer(config)
            shapes = {names.canonical(variable.name): tuple(variable.shape) for variable in model.variables}
        assert shapes == names.encoder_shapes(config) | {"lm_bias": (config.n_token,)}


class TestCoverage:
    """What load_into says and does when a checkpoint does not fit."""

    def change(self, **changes) -> Checkpoint:
        checkpoint = random_checkpoint(CONFIGS["micro"])
        arrays = {n: a for n, a in (dict(checkpoint.arrays) | changes).items() if a is not None}
        return dataclasses.replace(checkpoint, arrays=Arrays.of(arrays), config=None)

    def test_missing(self):
        checkpoint, model = self.change(mask_embedding=None), pretrainer(CONFIGS["micro"])
        before = model.encoder.mask_embedding.numpy()
        with pytest.raises(UserError, match="1 missing: mask_embedding"):
            load_into(model, checkpoint)
        coverage = load_into(model, checkpoint, strict=False)
        assert list(coverage.missing) == ["mask_embedding"] and not coverage.complete
        np.testing.assert_array_equal(model.encoder.mask_embedding.numpy(), before)
        np.testing.assert_array_equal(model.lm_bias.numpy(), checkpoint.arrays["lm_bias"])

    def test_nothing_is_assigned_by_a_failing_load(self):
        model = pretrainer(CONFIGS["micro"])
        with pytest.raises(UserError):
            load_into(model, self.change(mask_embedding=None))
        np.testing.assert_array_equal(model.lm_bias.numpy(), 0)

    def test_unexpected(self):
        checkpoint = self.change(mystery=np.zeros([2], np.float32))
        with pytest.raises(UserError, match="1 unexpected: mystery"):
            load_into(pretrainer(CONFIGS["micro"]), checkpoint)

    def test_other_shape(self):
        checkpoint = self.change(mask_embedding=np.zeros([5], np.float32))
        with pytest.raises(UserError, match=r"mask_embedding \(is \[5\], expected \[32\]\)"):
            load_into(pretrainer(CONFIGS["micro"]), checkpoint)

    def test_heads_that_the_model_lacks_are_left_aside(self):
        encoder = XLNetEncoder(CONFIGS["micro"])
        encoder.build()
        coverage = load_into(encoder, self.change())
        assert coverage.complete and list(coverage.unused) == ["lm_bias"]

    def test_heads_that_the_checkpoint_lacks_must_be_new(self):
        checkpoint = self.change(lm_bias=None)
        with pytest.raises(UserError, match="1 missing: lm_bias"):
            load_into(pretrainer(CONFIGS["micro"]), checkpoint)
        coverage = load_into(pretrainer(CONFIGS["micro"]), checkpoint, new=["lm_bias"])
        assert coverage.complete and list(coverage.new) == ["lm_bias"]

    def test_another_architecture_is_named_by_its_fields(self):
        checkpoint = random_checkpoint(CONFIGS["micro"])
        with pytest.raises(
            UserError, match="n_layer is 2 there and 3 in the model; untie_r is True there and False"
        ):
            load_into(pretrainer(CONFIGS["tied"]), checkpoint)
        relu = pretrainer(dataclasses.replace(CONFIGS["micro"], ff_activation="relu"))
        with pytest.raises(UserError, match="ff_activation is gelu there and relu in the model"):
            load_into(relu, checkpoint)

    def test_nothing_that_fits_is_an_error_even_if_not_strict(self):
        checkpoint = Checkpoint("x", "ours", Arrays.of({"a": np.zeros([1], np.float32)}), None)
        with pytest.raises(UserError, match="nothing that fits"):
            load_into(pretrainer(CONFIGS["micro"]), checkpoint, strict=False)

    def test_the_table_accounts_for_every_variable(self):
        checkpoint = self.change(
            mask_embedding=None, mystery=np.zeros([2], np.float32), lm_bias=np.zeros([3], np.float32)
        )
        coverage = load_into(pretrainer(CONFIGS["micro"]), checkpoint, strict=False)
        header, *lines = coverage.table().splitlines()
        columns = "part, loaded, missing, unexpected, other shape, unused, new, parameters loaded"
        assert header.split() == columns.replace(",", "").split()
        loaded, parameters = len(coverage.loaded), sum(map(math.prod, coverage.loaded.values()))
        assert {" ".join(line.split()) for line in lines[:4]} == {
            f"encoder {loaded} 1 - - - - {parameters:,}",
            "mystery - - 1 - - - 0",
            "lm_bias - - - 1 - - 0",
            f"all {loaded} 1 1 1 - - {parameters:,}",
        }
        assert lines[4:] == [
            "missing: mask_embedding [32]",
            "unexpected: mystery [2]",
            "other shape: lm_bias is [3], expected [200]",
        ]


def test_files_next_to_the_weights_are_copied(tmp_path, caplog):
    save_checkpoint(random_checkpoint(CONFIGS["micro"]), str(tmp_path / "a"), "ours")
    (tmp_path / "a" / "spiece.model").write_bytes(b"pieces")
    save_checkpoint(open_checkpoint(str(tmp_path / "a")), str(tmp_path / "b"), "hugging_face")
    assert (tmp_path / "b" / "spiece.model").read_bytes() == b"pieces"
    assert "spiece.model is not a SentencePiece model (6 bytes): no tokenizer.json is written" in caplog.text


@pytest.mark.parametrize(("source", "target"), [("ours", "hugging_face"), ("hugging_face", "ours")])
def test_conversion_holds_one_array_at_a_time(tmp_path, source, target):
    config = XLNetConfig.preset("micro", n_layer=12, n_head=8, d_model=64, d_inner=512)
    save_checkpoint(random_checkpoint(config), str(tmp_path / "a"), source)
    tracemalloc.start()
    save_checkpoint(open_checkpoint(str(tmp_path / "a")), str(tmp_path / "b"), target)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    largest, total = 4 * 64 * 512, 4 * num_parameters(config)
    assert peak < 5 * largest < total / 5


def test_weights_that_are_read_instead_of_the_new_ones_are_warned_of(tmp_path, caplog):
    checkpoint = random_checkpoint(CONFIGS["micro"])
    for format, said in (
        ("original", ""),
        ("hugging_face", ""),
        ("original", "holds model.safetensors, too"),
        ("ours", "holds config.json, too"),
        ("hugging_face", "holds weights.safetensors, too"),
    ):
        caplog.clear()
        save_checkpoint(checkpoint, str(tmp_path), format)
        assert said in caplog.text and bool(said) == bool(caplog.text)


def test_weights_of_another_model_are_not_replaced(tmp_path):
    for name in "ab":
        save_checkpoint(random_checkpoint(CONFIGS["micro"]), str(tmp_path / name), "ours")
    first, second = (open_checkpoint(tmp_path / name) for name in "ab")
    save_checkpoint(first, str(tmp_path / "x"), "ours")
    save_checkpoint(first, str(tmp_path / "x"), "hugging_face")  # both formats of one model
    save_checkpoint(open_checkpoint(f"{tmp_path}/b/../a/"), str(tmp_path / "x"), "ours")
    for folder, whose in (("x", "converted from .*/a/"), ("unknown", "whose origin is not known")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "pytorch_model.bin").write_bytes(b"weights")
        before = {path: path.read_bytes() for path in (tmp_path / folder).iterdir()}
        with pytest.raises(UserError, match=f"{folder} holds weights {whose}.*: choose another --output$"):
            save_checkpoint(second, str(tmp_path / folder), "ours")
        assert {path: path.read_bytes() for path in (tmp_path / folder).iterdir()} == before


def test_a_model_is_not_saved_next_to_files_that_count_as_its_own(tmp_path):
    encoder = XLNetEncoder(CONFIGS["micro"])
    encoder.build()
    save_model(encoder, tmp_path)
    save_model(encoder, tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="holds config.json, which would be taken for this model's: choose"):
        save_model(encoder, tmp_path)


@pytest.mark.parametrize(
    ("file", "said"), [("spiece.model", "splits texts with this tok"), ("params.yaml", "takes it for this")]
)
def test_files_of_another_model_are_warned_of(tmp_path, caplog, small_tokenizer, file, said):
    checkpoint = random_checkpoint(CONFIGS["micro"])
    save_checkpoint(checkpoint, str(tmp_path), "original")
    settings = b"task: {model: {clamp_len: 3}}"
    (tmp_path / file).write_bytes(settings if file == "params.yaml" else small_tokenizer.model_proto)
    save_checkpoint(checkpoint, str(tmp_path), "original")
    assert f"holds {file}, too, which does not come with these weights" in caplog.text and said in caplog.text
    caplog.clear()
    for _ in range(2):
        save_checkpoint(open_checkpoint(str(tmp_path)), str(tmp_path / "a"), "original")
    assert not caplog.text


class TestBadInput:
    """Each wrong file gives one error that says what was found and what is expected."""

    def test_wrong_paths_and_formats(self, tmp_path):
        (tmp_path / "notes.txt").write_text("")
        checkpoint = random_checkpoint(CONFIGS["micro"])
        with pytest.raises(FileNotFoundError, match="there is no checkpoint at .*none: expected the folder"):
            open_checkpoint(str(tmp_path / "none"))
        with pytest.raises(UserError, match="holds no checkpoint .but notes.txt.*expected"):
            open_checkpoint(str(tmp_path))
        with pytest.raises(UserError, match="notes.txt is not a checkpoint"):
            open_checkpoint(str(tmp_path / "notes.txt"))
        with pytest.raises(UserError, match="format is 'onnx'; expected one of ours"):
            save_checkpoint(checkpoint, str(tmp_path / "a"), "onnx")
        save_checkpoint(checkpoint, str(tmp_path / "a"), "ours")
        with pytest.raises(UserError, match="folder of the checkpoint itself"):
            save_checkpoint(open_checkpoint(str(tmp_path / "a")), str(tmp_path / "a"), "ours")

    @pytest.mark.parametrize(
        ("file", "part"), [("index", 2), ("data-00000-of-00001", 2), ("data-00000-of-00001", None)]
    )
    def test_damaged_tensorflow(self, tmp_path, file, part):
        save_unlisted(random_checkpoint(CONFIGS["micro"]), tmp_path, "original")
        path = tmp_path / f"xlnet_model.ckpt.{file}"
        content = path.read_bytes()
        path.unlink()
        if part:
            path.write_bytes(content[: len(content) // part])
        with pytest.raises(UserError, match="damaged or cut off"):
            load_into(pretrainer(CONFIGS["micro"]), str(tmp_path))

    @pytest.mark.parametrize("format", ["ours", "hugging_face"])
    @pytest.mark.parametrize("content", [b"", b"\x08", b"\xff" * 40, b"\x05" + b"\0" * 7 + b"{...}", None])
    def test_malformed_safetensors(self, tmp_path, format, content):
        save_unlisted(random_checkpoint(CONFIGS["micro"]), tmp_path, format)
        path = next(tmp_path.glob("*.safetensors"))
        path.write_bytes(path.read_bytes()[:-5] if content is None else content)
        with pytest.raises(UserError, match="not a safetensors file, or is damaged"):
            open_checkpoint(str(tmp_path))

    def test_no_architecture(self, tmp_path):
        save_checkpoint(random_checkpoint(CONFIGS["micro"]), str(tmp_path), "ours")
        (tmp_path / "xlnet_config.json").unlink()
        with pytest.raises(UserError, match="there is no architecture next to"):
            save_checkpoint(open_checkpoint(str(tmp_path)), str(tmp_path / "b"), "original")
        assert load_into(pretrainer(CONFIGS["micro"]), str(tmp_path)).complete

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ("{", "config.json is not JSON"),
            ("[]", "holds a list"),
            ('{"model_type": "bert"}', "model_type 'bert'; expected 'xlnet'"),
            ('{"model_type": "xlnet"}', "config.json: fields missing .*d_model"),
            ('{"vocab_size": 5, "ff_activation": "silu"}', "ff_activation is 'silu'; expected one of"),
            ('{"vocab_size": 5, "layer_norm_eps": 1e-5}', "layer_norm_eps is 1e-05"),
        ],
    )
    def test_configs_of_hugging_face(self, tmp_path, config, message):
        save_unlisted(random_checkpoint(CONFIGS["micro"]), tmp_path, "hugging_face")
        (tmp_path / "config.json").write_text(config)
        with pytest.raises(UserError, match=message):
            open_checkpoint(str(tmp_path))

    def test_another_network(self, tmp_path):
        save_file({"bert.encoder.weight": np.zeros([2, 2], np.float32)}, tmp_path / "model.safetensors")
        with pytest.raises(UserError, match=r"missing: .*1 unexpected: bert.encoder.weight"):
            load_into(pretrainer(CONFIGS["micro"]), str(tmp_path))

    def test_weights_that_are_not_of_the_config(self, tmp_path):
        checkpoint = random_checkpoint(CONFIGS["micro"])
        wrong = dataclasses.replace(checkpoint, config=dataclasses.replace(checkpoint.config, n_layer=3))
        with pytest.raises(UserError, match="does not fit its architecture: 17 missing: layer_2/"):
            save_checkpoint(wrong, str(tmp_path / "b"), "ours")
        assert not (tmp_path / "b").exists()

    def test_heads_that_do_not_fill_the_width(self, tmp_path):
        config = XLNetConfig(n_token=20, n_layer=1, d_model=10, n_head=3, d_head=7, d_inner=8)
        with pytest.raises(UserError, match=r"n_head \* d_head is 3 \* 7, and d_model is 10"):
            save_checkpoint(random_checkpoint(config), str(tmp_path), "hugging_face")


def test_a_format_is_for_what_is_written():
    ended = run_in_fork("run_scripts.convert_checkpoint", "--input=a", "--format=original")
    assert ended.stderr == "ERROR: --format=original writes nothing without --output: give --output=FOLDER\n"


def test_convert(tmp_path):
    source = str(original.GOLDEN / "tiny_ckpt")
    assert "nothing written" in convert(source, None, "ours", None, strict=True)
    text = convert(source, str(tmp_path / "hf"), "hugging_face", None, strict=True)
    assert "tiny_ckpt/xlnet_model.ckpt (original): written to" in text and "stripped: 1" in text
    assert_equal(open_checkpoint(str(tmp_path / "hf")), open_checkpoint(source))
    with pytest.raises(UserError, match="expected"):
        convert(str(tmp_path), str(tmp_path / "x"), "ours", None, strict=True)


def test_a_full_disk_leaves_no_part_of_the_originals_format(tmp_path):
    checkpoint = random_checkpoint(CONFIGS["micro"])
    with (
        pytest.raises(UserError, match="^cannot write .*xlnet_model.ckpt: File too large. Make room"),
        files_of_at_most(20_000),
    ):
        save_checkpoint(checkpoint, str(tmp_path), "original")
    assert not list(tmp_path.iterdir())
