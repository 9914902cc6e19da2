"""Checkpoints of every format become every other, bit for bit."""

import dataclasses
import functools
import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from run_scripts.convert_checkpoint import convert
from tests.helpers.models import original
from tests.helpers.models.checkpoints import (
    CONFIGS,
    assert_equal,
    pretrainer,
    random_checkpoint,
    save_unlisted,
)
from tests.helpers.records import torch_writer
from xlnet_tf.checkpoints import (
    FORMATS,
    check,
    load_into,
    names,
    open_checkpoint,
    save_checkpoint,
    tensorflow_files,
)
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.training.optimizer import OptimizerConfig, build_optimizer


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


QUERY_START, BIAS = "model/transformer/mask_emb/mask_emb", "model/lm_loss/bias"


def heads_of_the_original():
    saved = tf.train.list_variables(original.GOLDEN / "tiny_ckpt_heads/xlnet_model.ckpt")
    return [name for name, _ in saved if not name.startswith("model/transformer")]


@pytest.mark.parametrize("others", [[], [BIAS], heads_of_the_original()], ids=["all", "no bias", "no head"])
@pytest.mark.parametrize("format", FORMATS)
def test_checkpoints_that_the_original_fine_tuned_are_converted(tmp_path, format, others):
    """They lack the vector that the query stream starts from, and may have the language model's bias."""
    dropped = [QUERY_START, *others]
    source = open_checkpoint(original.write_fine_tuned(tmp_path / "source", dropped))
    assert check(source).complete and list(check(source).new) == ["mask_embedding"]
    text = convert(str(tmp_path / "source"), str(tmp_path / "there"), format, None, strict=True)
    assert ("note: it has no mask_emb" in text) == (format == "hugging_face")
    there = open_checkpoint(tmp_path / "there")
    assert_equal(there, source)
    save_checkpoint(there, str(tmp_path / "back"), "original")
    assert_equal(open_checkpoint(tmp_path / "back"), source)
    XLNetEncoder.from_pretrained(tmp_path / "there")


@pytest.mark.parametrize("bias", [True, False])
def test_a_language_model_needs_more_than_a_fine_tuned_checkpoint(tmp_path, bias):
    dropped = [QUERY_START] + [BIAS] * (not bias)
    path = original.write_fine_tuned(tmp_path / "source", dropped)
    for model in (XLNetPretrainer, XLNetLanguageModel):
        with pytest.raises(UserError, match=r"mask_embedding.*query stream.*pretrained weights") as error:
            model.from_pretrained(path)
        assert ("lm_bias, the language-model head" in str(error.value)) != bias
        assert "but has choice, classification_imdb, " in str(error.value)


def test_pretrained_weights_without_the_query_stream_are_damaged(tmp_path):
    base = random_checkpoint(CONFIGS["micro"])
    arrays = {name: base.arrays[name] for name in base.arrays if name != "mask_embedding"}
    with pytest.raises(UserError, match="1 missing: mask_embedding"):
        save_checkpoint(dataclasses.replace(base, arrays=Arrays.of(arrays)), str(tmp_path), "ours")


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


def test_a_classifier_of_one_class_stays_one(tmp_path):
    heads = {"classification_odd/logits/kernel": (32, 1), "classification_odd/logits/bias": (1,)}
    base = random_checkpoint(CONFIGS["micro"], [])
    arrays = dict(base.arrays) | {name: np.ones(shape, np.float32) for name, shape in heads.items()}
    save_checkpoint(dataclasses.replace(base, arrays=Arrays.of(arrays)), str(tmp_path), "hugging_face")
    assert set(heads) < set(open_checkpoint(str(tmp_path)).arrays)


def test_large_weights_of_the_original_are_written_in_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(tensorflow_files, "_SHARD_BYTES", 20_000)
    checkpoint = random_checkpoint(CONFIGS["micro"])
    save_checkpoint(checkpoint, str(tmp_path), "original")
    assert len(list(tmp_path.glob("xlnet_model.ckpt.data-*-of-*"))) > 2
    assert not list(tmp_path.glob("*part*"))
    assert_equal(open_checkpoint(str(tmp_path)), checkpoint)


@pytest.mark.parametrize("kind", ["run", "compiled model", "model of a run"])
def test_the_optimizer_of_a_run_or_a_compiled_model_is_left_out(tmp_path, kind):
    """Its slots are named after the variables, and must not be taken for them."""
    model = pretrainer(CONFIGS["tied"])
    optimizer = build_optimizer(OptimizerConfig(), 10, n_layer=3)
    optimizer.build(model.trainable_variables)
    (tmp_path / "xlnet_config.json").write_text(CONFIGS["tied"].to_json())
    if kind == "run":
        saved = tf.train.Checkpoint(model=model, optimizer=optimizer, global_step=tf.Variable(7))
        tf.train.CheckpointManager(saved, str(tmp_path), 1).save()
        opened = open_checkpoint(str(tmp_path))
        scopes = {name.partition("/")[0] for name in opened.stripped}
        assert scopes == {"global_step", "optimizer", "save_counter"}
    else:
        model.compile(optimizer=optimizer)
        saved = tf.train.Checkpoint(model=model) if "run" in kind else tf.train.Checkpoint(model)
        opened = open_checkpoint(saved.write(str(tmp_path / "ckpt")))
    assert opened.format == "ours" and check(opened).complete and len(opened.stripped) > len(model.variables)
    other = pretrainer(CONFIGS["tied"])
    coverage = load_into(other, opened)
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
    original.save(prefix, tensors)
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
    weight_map = {name: "ab"[number % 2] + ".safetensors" for number, name in enumerate(arrays)}
    for file in set(weight_map.values()):
        save_file({name: arrays[name] for name in arrays if weight_map[name] == file}, tmp_path / file)
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


def test_the_table_has_the_models_variables_and_no_others():
    for config in (*CONFIGS.values(), XLNetConfig.preset("large")):
        with tf.Graph().as_default():  # variables without memory
            model = pretrainer(config)
            shapes = {names.canonical(variable.name): tuple(variable.shape) for variable in model.variables}
        assert shapes == names.encoder_shapes(config) | {"lm_bias": (config.n_token,)}
