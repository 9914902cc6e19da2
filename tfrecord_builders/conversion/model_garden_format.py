"""Finds the records of Model Garden's create_xlnet_pretraining_data.py by their meta files."""

import re
from collections.abc import Sequence

import numpy as np
from etils import epath

from tfrecord_builders.conversion.int64_records import ExternalFile, ExternalSet, glob, joined
from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.text.vocabulary import UNDERLINE
from xlnet_tf.text.words import START_PUNCTUATION

FEATURES = {"ids": "input_word_ids", "segment_ids": "input_type_ids", "label": "label"}
BORDERS = "boundary_indices"
_FIELDS = {
    "per_host_batch_size": int,
    "num_cores_per_host": int,
    "seq_length": int,
    "reuse_length": int,
    "do_lower_case": bool,
    "bi_data": bool,
}


def find(inputs: Sequence[str], num_cores: int | None = None) -> ExternalSet:
    """Finds record files by their meta files, *.tfrecord*.json, in folders or given by paths or globs.

    num_cores is num_cores_per_host of the build; None: as in the meta files.
    """
    metas = []
    for name in inputs:
        matches = files.files_in(name, ".json") if epath.Path(name).is_dir() else glob(name)
        matches = [path for path in matches if re.search(r"\.tfrecord(-\d+-of-\d+)?\.json$", path.name)]
        if not matches:
            raise UserError(
                f"{name}: no meta file (*.tfrecord.json or *.tfrecord-0-of-N.json), which says how the rows "
                "lie in the records. Model Garden's builder writes one for task 0: copy it along"
            )
        metas += matches
    return joined([_read(meta, num_cores) for meta in dict.fromkeys(metas)])


def _read(meta: epath.Path, num_cores: int | None) -> ExternalSet:
    """Reads a meta file and finds the files of all tasks and passes."""
    values = files.read_json(meta)
    for name, kind in _FIELDS.items():
        if type(values.get(name)) is not kind:
            raise UserError(f"{meta}: {name} is {values.get(name)!r}, expected {kind.__name__}")
    if values["reuse_length"] < 1:
        raise UserError(
            f"{meta}: reuse_length is {values['reuse_length']}: records without a reused part cannot be "
            "converted. Build with --reuse_length"
        )
    base = re.sub(r"(-\d+-of-\d+)?\.json$", "", meta.name)
    paths = [p for p in meta.parent.iterdir() if re.fullmatch(re.escape(base) + r"(-\d+-of-\d+)?", p.name)]
    if not paths:
        raise UserError(f"{meta}: there is no {base} next to it: copy the records along")
    expected = {int(match[1]) for p in paths if (match := re.search(r"-of-(\d+)$", p.name))}
    if expected and (len(expected) > 1 or len(paths) != max(expected)):
        raise UserError(
            f"{meta}: found {len(paths)} files {base}-I-of-{max(expected)}, expected all {max(expected)}: "
            "copy the missing ones along"
        )

    def number(path):
        match = re.search(r"-(\d+)-of-\d+$", path.name)
        return int(match[1]) if match else 0

    cores = num_cores or values["num_cores_per_host"]
    external = tuple(
        ExternalFile(
            path, values["per_host_batch_size"], cores if values["bi_data"] else 1, values["bi_data"], None
        )
        for path in sorted(paths, key=number)
    )
    return ExternalSet(
        files=external,
        seq_len=values["seq_length"],
        reuse_len=values["reuse_length"],
        lower=values["do_lower_case"],
        num_predict=None,
        alpha=6,
        beta=1,
        split="train",
    )


def border_pieces(pieces: Sequence[str]) -> np.ndarray:
    """Returns bool [V]: the pieces that are listed in `boundary_indices`."""
    return np.array([piece[0] == UNDERLINE or piece in START_PUNCTUATION for piece in pieces])


def borders_agree(borders: np.ndarray, ids: np.ndarray, is_border: np.ndarray) -> np.ndarray:
    """Returns bool [S, B]: whether the word borders of ids [S, B, T] are the tokenizer's, `is_border` [V].

    `borders` are positions, int64 [S, B, any]: the last of them is T, -1 after.
    """
    count, rows, seq_len = ids.shape
    listed = np.zeros((count * rows, seq_len + 2), bool)
    flat = borders.reshape(count * rows, -1)
    flat = np.where((flat < 0) | (flat > seq_len), seq_len + 1, flat)
    np.put_along_axis(listed, flat, True, axis=1)
    same = (listed[:, :seq_len] == is_border[ids].reshape(-1, seq_len)).all(axis=1)
    return (same & listed[:, seq_len]).reshape(count, rows)
