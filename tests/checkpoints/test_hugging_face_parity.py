"""Converted weights compute what Hugging Face's PyTorch XLNet computes; needs torch and transformers.

Heads are compared in test_transformers_process.py.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: no comparison with Hugging Face's XLNet")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from xlnet_tf.checkpoints import load_into, open_checkpoint
from xlnet_tf.checkpoints.torch_file import read_torch_file
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer

TOLERANCE = 1e-4
# Not left-to-right attention: Hugging Face's cannot be combined with masks in a batch of several rows.
SIZES = {"vocab_size": 97, "d_model": 48, "n_layer": 3, "n_head": 4, "d_inner": 80, "initializer_range": 0.15}
CONFIGS = {
    "base_like": {"vocab_size": 500, "d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072},
    "tanh": SIZES | {"ff_activation": "gelu_new"},
    "exact_gelu": SIZES | {"ff_activation": "gelu"},
    "relu": SIZES | {"ff_activation": "relu"},
    "one_layer_odd_heads": SIZES | {"n_layer": 1, "n_head": 3, "d_model": 42, "d_inner": 7},
    "clamped": SIZES | {"clamp_len": 3},
    "bidirectional_data": SIZES | {"bi_data": True},
    "tied_in_name": SIZES | {"untie_r": False},
}
B, T, P, M = 4, 14, 3, 5


def their_model(kind: str, name: str, **changes):
    """A model of Hugging Face's with random weights, biases and norms included."""
    torch.manual_seed(0)
    config = transformers.XLNetConfig(**CONFIGS[name], **changes, mem_len=M, reuse_len=4, use_mems_eval=True)
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def our_model(folder, config, **options) -> XLNetPretrainer:
    encoder = XLNetEncoder(
        open_checkpoint(str(folder)).config,
        dropout=0.0,
        attention_dropout=0.0,
        clamp_len=config.clamp_len,
        memory_len=M,
        reuse_len=4,
        uniform_when_blind=True,
        **options,
    )
    return XLNetPretrainer(encoder)


def inputs(vocab_size: int):
    rng = np.random.default_rng(1)
    rank = rng.permuted(np.tile(np.arange(T, dtype=np.int16), [B, 1]), axis=1)
    targets = np.sort(rng.permuted(np.tile(np.arange(T), [B, 1]), axis=1)[:, :P], axis=1)
    is_target = np.zeros([B, T], bool)
    np.put_along_axis(is_target, targets, True, axis=1)
    mask = np.ones([B, T], np.int32)
    mask[1, :4] = 0  # padding on the left
    ours = {
        "input_word_ids": rng.integers(0, vocab_size, [B, T]),
        "input_type_ids": rng.integers(0, 3, [B, T]),
        "input_mask": mask,
        "permutation_rank": rank,
        "target_positions": targets.astype(np.int32),
    }
    hidden = rank[:, None, :].astype(int) >= rank[:, :, None] + ~is_target[:, :, None]
    theirs = {
        "input_ids": torch.tensor(ours["input_word_ids"]),
        "token_type_ids": torch.tensor(ours["input_type_ids"]),
        "attention_mask": torch.tensor(mask),
        "perm_mask": torch.tensor(hidden, dtype=torch.float32),
        "target_mapping": torch.nn.functional.one_hot(torch.tensor(targets), T).float(),
    }
    return ours, theirs


def assert_close(ours, theirs):
    np.testing.assert_allclose(np.asarray(ours), theirs.numpy(), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("file", ["model.safetensors", "zip", "legacy"])
def test_language_model(tmp_path, name, file):
    theirs = their_model("XLNetLMHeadModel", name)
    theirs.save_pretrained(tmp_path)
    if file != "model.safetensors":
        (tmp_path / "model.safetensors").unlink()
        torch.save(
            theirs.state_dict(), tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=file == "zip"
        )
    ours = our_model(tmp_path, theirs.config)
    ours.build()
    assert load_into(ours, str(tmp_path)).complete
    our_inputs, their_inputs = inputs(theirs.config.vocab_size)
    if theirs.config.bi_data:
        our_inputs["direction"] = np.repeat(np.int8([1, -1]), B // 2)
    memory = {}
    for _ in range(2):  # the second segment has the first in its memory
        with torch.no_grad():
            expected = theirs(**their_inputs)
            content = theirs.transformer(
                **{k: v for k, v in their_inputs.items() if k != "target_mapping"}
            ).last_hidden_state
        outputs = ours({**our_inputs, **memory})
        assert_close(outputs["logits"], expected.logits)
        assert_close(ours.encoder({**our_inputs, **memory})["sequence_output"], content)
        for layer, mems in enumerate(expected.mems):
            assert_close(outputs["next_memory"][layer], mems.permute(1, 0, 2))
        their_inputs["mems"] = expected.mems
        memory = {"memory": outputs["next_memory"]}


def test_our_reader_agrees_with_torchs(shared):
    path = shared("data/tiny_hf_xlnet/pytorch_model.bin")
    expected = torch.load(path, weights_only=True)
    arrays = read_torch_file(str(path))
    assert set(arrays) == set(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(arrays[name], tensor.numpy(), err_msg=name)
