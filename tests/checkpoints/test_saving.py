"""What weights are saved next to, how they are converted by command, and what is said of them."""

import tracemalloc

import pytest

from run_scripts.convert_checkpoint import convert
from tests.helpers.commands import run_in_fork
from tests.helpers.full_disk import files_of_at_most
from tests.helpers.models import original
from tests.helpers.models.checkpoints import CONFIGS, assert_equal, num_parameters, random_checkpoint
from xlnet_tf.checkpoints import open_checkpoint, save_checkpoint, save_model
from xlnet_tf.checkpoints.model_card import ModelCard
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.serving.sources import open_served


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


@pytest.mark.parametrize("format", ["original", "hugging_face"])
def test_a_head_that_a_format_lacks_is_noted(tmp_path, format):
    variables = ["ranking/logits/kernel", "ranking/logits/bias"]
    save_checkpoint(random_checkpoint(CONFIGS["micro"], variables), str(tmp_path / "run"), "ours")
    text = convert(str(tmp_path / "run"), str(tmp_path / format), format, None, strict=True)
    assert "have no ranking: they leave" in text or "has no ranking: it leaves these weights out" in text


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
