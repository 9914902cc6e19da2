"""The reader of pytorch_model.bin reads both formats, and never runs what a file asks for."""

import collections
import contextlib
import os
import pickle
import zipfile

import ml_dtypes
import numpy as np
import pytest

from tests.helpers.records import torch_writer
from xlnet_tf.checkpoints.torch_file import read_torch_file
from xlnet_tf.errors import UserError

ARRAYS = {
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "half": np.array([0.5, -2], np.float16),
    "brain": np.array([1.5, 3], ml_dtypes.bfloat16),
    "scalar": np.array(7, np.float32),
    "empty": np.zeros([0, 3], np.float32),
}


@pytest.fixture(params=[True, False], ids=["legacy", "zip"])
def legacy(request):
    return request.param


@pytest.mark.parametrize("byteorder", ["little", "big", None])
def test_arrays_of_either_byte_order_are_read_as_float32(tmp_path, legacy, byteorder):
    torch_writer.write(tmp_path / "model.bin", ARRAYS, legacy, byteorder)
    read = read_torch_file(str(tmp_path / "model.bin"))
    assert read.shapes == {name: array.shape for name, array in ARRAYS.items()}
    for name, array in ARRAYS.items():
        assert read[name].dtype == np.float32
        np.testing.assert_array_equal(read[name], array.astype(np.float32), err_msg=name)


@pytest.mark.parametrize("byteorder", ["BIG", "middle", "", " little", "little\n"])
def test_an_unknown_byte_order_is_refused(tmp_path, byteorder):
    torch_writer.write(tmp_path / "model.bin", ARRAYS, False, byteorder or "x" * 1000)
    with pytest.raises(UserError, match="model.bin .*its byteorder is .*; PyTorch writes 'little' or 'big'"):
        read_torch_file(str(tmp_path / "model.bin"))


def test_doubles_are_refused_rather_than_rounded(tmp_path, legacy):
    torch_writer.write(tmp_path / "model.bin", {"w": np.array([0.1])}, legacy)
    with pytest.raises(UserError, match="w is of type float64; expected float32"):
        read_torch_file(str(tmp_path / "model.bin"))["w"]


def test_truncated_files_are_refused(tmp_path, legacy):
    path = tmp_path / "model.bin"
    torch_writer.write(path, ARRAYS, legacy)
    whole = path.read_bytes()
    for size in (0, 1, 20, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match="model.bin .*damaged"):
            dict(read_torch_file(str(path)))


def test_damaged_bytes_never_crash_the_reader(tmp_path, legacy):
    path = tmp_path / "model.bin"
    torch_writer.write(path, ARRAYS, legacy)
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] = rng.integers(256)
        path.write_bytes(damaged)
        with contextlib.suppress(UserError):
            dict(read_torch_file(str(path)))


class _Bomb:
    """Pickled, this is a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def _write_pickle(path, value, legacy):
    if legacy:
        with open(path, "wb") as file:
            for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, value, []):
                pickle.dump(part, file, protocol=2)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x/data.pkl", pickle.dumps(value, protocol=2))


@pytest.mark.parametrize(
    ("bomb", "asked"),
    [
        (lambda mark: _Bomb(os.mkdir, mark), "(posix|nt).mkdir"),
        (lambda mark: _Bomb(eval, f"__import__('os').mkdir({mark!r})"), "__builtin__.eval"),
        (lambda mark: collections.OrderedDict(weight=_Bomb(os.mkdir, mark)), "(posix|nt).mkdir"),
        (lambda _: _Bomb(__import__, "os"), "__builtin__.__import__"),
    ],
)
def test_pickles_that_call_functions_are_refused(tmp_path, legacy, bomb, asked):
    mark = str(tmp_path / "was_run")
    _write_pickle(tmp_path / "model.bin", bomb(mark), legacy)
    with pytest.raises(UserError, match=f"asks for {asked}.*refused"):
        read_torch_file(str(tmp_path / "model.bin"))
    assert not os.path.exists(mark)
    (tmp_path / "model.bin").write_bytes(pickle.dumps(bomb(mark), protocol=2))  # first of all
    with pytest.raises(UserError, match="refused"):
        read_torch_file(str(tmp_path / "model.bin"))
    assert not os.path.exists(mark)


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, 5, {1: 2}])
def test_a_pickle_without_a_tensor_table_is_refused(tmp_path, legacy, value):
    _write_pickle(tmp_path / "model.bin", value, legacy)
    with pytest.raises(UserError, match="expected a whole pytorch_model.bin"):
        read_torch_file(str(tmp_path / "model.bin"))


def test_tensors_beyond_their_storage_are_refused(tmp_path):
    torch_writer.write(tmp_path / "model.bin", {"w": np.zeros([5, 1], np.float32)}, legacy=True)
    content = (tmp_path / "model.bin").read_bytes()
    assert content.count(b"K\x05K\x01\x86") == 1
    (tmp_path / "model.bin").write_bytes(content.replace(b"K\x05K\x01\x86", b"K\x06K\x01\x86"))
    with pytest.raises(UserError, match="w reaches beyond its storage"):
        read_torch_file(str(tmp_path / "model.bin"))


def test_a_real_file_of_the_legacy_format(shared):
    arrays = read_torch_file(str(shared("data/tiny_hf_xlnet/pytorch_model.bin")))
    assert len(arrays) == 53 and arrays.shapes["word_embedding.weight"] == (32000, 16)
    # torch's initial weights: normal kernels, and norms that do nothing yet.
    assert abs(arrays["word_embedding.weight"].std() - 0.02) < 1e-3
    np.testing.assert_array_equal(arrays["layer.2.ff.layer_norm.weight"], np.ones(16))
