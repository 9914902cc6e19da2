"""What does not fit a model, and files that are wrong, are named when weights are loaded."""

import dataclasses
import json
import math

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.helpers.models.checkpoints import CONFIGS, pretrainer, random_checkpoint, save_unlisted
from xlnet_tf.checkpoints import Checkpoint, load_into, open_checkpoint, save_checkpoint
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.models.encoder import XLNetEncoder


class TestCoverage:
    def change(self, **changes) -> Checkpoint:
        checkpoint = random_checkpoint(CONFIGS["micro"])
        arrays = {n: a for n, a in (dict(checkpoint.arrays) | changes).items() if a is not None}
        return dataclasses.replace(checkpoint, arrays=Arrays.of(arrays), config=None)

    def test_missing(self):
        checkpoint, model = self.change(mask_embedding=None), pretrainer(CONFIGS["micro"])
        before = model.encoder.mask_embedding.numpy()
        with pytest.raises(UserError, match="1 missing: mask_embedding"):
            load_into(model, checkpoint)
        np.testing.assert_array_equal(model.lm_bias.numpy(), 0)  # nothing is assigned by a failing load
        coverage = load_into(model, checkpoint, strict=False)
        assert list(coverage.missing) == ["mask_embedding"] and not coverage.complete
        np.testing.assert_array_equal(model.encoder.mask_embedding.numpy(), before)
        np.testing.assert_array_equal(model.lm_bias.numpy(), checkpoint.arrays["lm_bias"])

    def test_unexpected_or_of_another_shape(self):
        for name, message in (
            ("mystery", "1 unexpected: mystery"),
            ("mask_embedding", r"\(is \[5\], expected"),
        ):
            with pytest.raises(UserError, match=message):
                load_into(pretrainer(CONFIGS["micro"]), self.change(**{name: np.zeros([5], np.float32)}))

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
        with pytest.raises(UserError, match="n_layer is 2 there and 3 .*; untie_r is True there and False"):
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


class TestBadInput:
    def test_wrong_paths_and_formats(self, tmp_path):
        (tmp_path / "notes.txt").write_text("")
        checkpoint = random_checkpoint(CONFIGS["micro"])
        with pytest.raises(FileNotFoundError, match="there is no checkpoint at .*none: expected the folder"):
            open_checkpoint(str(tmp_path / "none"))
        with pytest.raises(UserError, match="holds no checkpoint .but notes.txt.*expected"):
            open_checkpoint(str(tmp_path))
        (tmp_path / "served" / "reviews" / "1").mkdir(parents=True)
        (tmp_path / "served" / "reviews" / "1" / "saved_model.pb").write_text("")
        with pytest.raises(UserError, match="Its folder .*served/reviews is an export: name that"):
            open_checkpoint(str(tmp_path / "served"))
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

    def test_an_array_of_too_many_dimensions(self, tmp_path):
        header = json.dumps({"w": {"dtype": "F32", "shape": [1] * 1000, "data_offsets": [0, 4]}}).encode()
        data = len(header).to_bytes(8, "little") + header + bytes(4)
        (tmp_path / "model.safetensors").write_bytes(data)
        with pytest.raises(UserError, match="safetensors: 'w' has 1,000 dimensions; expected at most 8"):
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
