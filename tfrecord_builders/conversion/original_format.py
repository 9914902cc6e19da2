"""Reads and writes pretraining records in the format of the original's data_utils.py.

File names state the settings, and a record_info json next to each file its number of steps.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from etils import epath

from tfrecord_builders.conversion.int64_records import ExternalFile, ExternalSet, glob, joined
from xlnet_tf import files, folders
from xlnet_tf.errors import UserError
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.segments import NUM_SPECIAL
from xlnet_tf.records.shards import read_shard
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID

FEATURES = {"ids": "input", "segment_ids": "seg_id", "label": "label", "is_masked": "is_masked"}
_NAME = re.compile(
    r"record_info-(?P<split>\w+)-(?P<task>\d+)-(?P<pass_id>\d+)\.bsz-(?P<batch_size>\d+)"
    r"\.seqlen-(?P<seq_len>\d+)\.reuse-(?P<reuse_len>\d+)\.(?P<uncased>uncased\.)?(?P<kind>bi|uni)"
    r"\.alpha-(?P<alpha>\d+)\.beta-(?P<beta>\d+)\.(fnp-(?P<num_predict>\d+)\.)?json"
)
_CORPUS_INFO = "corpus_info.json"
_WRITE_RECORDS = 2048  # at once


def find(inputs: Sequence[str], num_cores: int | None = None) -> ExternalSet:
    """Finds record files by their record_info-*.json, in folders or given by paths or globs.

    num_cores is num_core_per_host of the build; None: as in corpus_info.json.
    """
    infos = []
    for name in inputs:
        folder = epath.Path(name)
        if folder.is_dir():
            both = (folder, folder / "tfrecords")
            matches = [path for each in both for path in files.files_in(each, ".json", "record_info-")]
        else:
            matches = glob(name)
        if not matches:
            raise UserError(
                f"{name}: no record_info-*.json, which says which TFRecord files there are, of how many "
                "steps. The original's data_utils.py writes one next to each: copy it along"
            )
        infos += matches
    sets = sorted((_read(info, num_cores) for info in dict.fromkeys(infos)), key=lambda read: read[0])
    return joined([external for _, external in sets])


def _read(info: epath.Path, num_cores: int | None) -> tuple[tuple[int, int], ExternalSet]:
    match = _NAME.fullmatch(info.name)
    if not match:
        raise UserError(
            f"{info}: the name says how the records were made; expected record_info-SPLIT-TASK-PASS.bsz-B."
            "seqlen-T.reuse-R.[uncased.](bi|uni).alpha-A.beta-B.[fnp-P.]json"
        )
    try:
        values = json.loads(info.read_text())
        names, num_steps = values["filenames"], values["num_batch"]
        wrong = type(num_steps) is not int or num_steps < 1 or type(names) is not list or len(names) != 1
    except (ValueError, KeyError, TypeError):
        values, wrong = info.read_text()[:80], True
    if wrong:
        raise UserError(f"{info} is {values!r}, expected one name in filenames and the steps in num_batch")
    path = info.parent / str(names[0]).rsplit("/", 1)[-1]  # the folder may have moved: the original's rule
    if not path.exists():
        raise UserError(f"{path} is missing, which {info.name} lists: copy it along")
    numbers = {name: value and int(value) for name, value in match.groupdict().items() if name in _INTEGERS}
    bidirectional = match["kind"] == "bi"
    if not bidirectional:
        num_cores = 1
    elif num_cores is None:
        num_cores = _num_cores(info, numbers)
    external = ExternalSet(
        files=(ExternalFile(path, numbers["batch_size"], num_cores, bidirectional, num_steps),),
        seq_len=numbers["seq_len"],
        reuse_len=numbers["reuse_len"],
        lower=match["uncased"] is not None,
        num_predict=numbers["num_predict"],
        alpha=numbers["alpha"],
        beta=numbers["beta"],
        split=match["split"],
    )
    return (int(match["pass_id"]), int(match["task"])), external


_INTEGERS = ("batch_size", "seq_len", "reuse_len", "alpha", "beta", "num_predict")


def _num_cores(info: epath.Path, numbers: dict[str, Any]) -> int:
    """Returns the cores by which rows were laid out, which only corpus_info.json states."""
    for folder in (info.parent.parent, info.parent):
        if (folder / _CORPUS_INFO).exists():
            values = files.read_json(folder / _CORPUS_INFO)
            same = (values.get("bsz_per_host"), values.get("seq_len")) == (
                numbers["batch_size"], numbers["seq_len"])  # fmt: skip
            if same and type(values.get("num_core_per_host")) is int:
                return values["num_core_per_host"]
    raise UserError(
        f"{info}: which rows are read backward depends on num_core_per_host, which only {_CORPUS_INFO} "
        "has, and there is none of these records here: give --num_cores, the build's num_core_per_host (1 "
        "if it had --use_tpu=False)"
    )


@dataclasses.dataclass(frozen=True)
class Written:
    """The files and size of a set in the original's format: steps are batches of all files."""

    files: list[str]
    steps: int
    records: int
    dropped: int  # records that did not fill a step of all rows


def write(
    manifest: Manifest,
    output_dir: epath.PathLike,
    batch_size: int,
    num_cores: int = 1,
    num_tasks: int = 1,
    report: Callable[[int], None] = lambda records: None,
) -> Written:
    """Writes a set in the original's format, for its train.py and other readers of it.

    The records of a direction, in the set's order, are distributed to equal rows, as many as a batch has of
    it. Contents that training does not need are replaced: is_masked has as many special tokens as targets are
    missing from num_predict (the original's reader drops them), and the next token after A and B, which no
    target uses, is CLS where the records do not show it.

    Args:
        output_dir: the original's save_dir: gets corpus_info.json and the folder tfrecords.
        batch_size: rows of a batch of a host, bsz_per_host.
        num_cores: cores that share them, num_core_per_host.
        num_tasks: files for each pass.
        report: called with the number of records written since the last call.
    """
    folder = epath.Path(output_dir)
    _check_output(manifest, folder)
    files.make_folder(folder / "tfrecords")
    fixed = manifest.num_predict if manifest.has_fixed_targets else None
    num_steps: dict[str, int] = {}
    for pass_index, task in itertools.product(range(manifest.num_passes), range(num_tasks)):
        name = _name(manifest, fixed, batch_size, task, pass_index)
        path = folder / "tfrecords" / f"{name}tfrecords"
        layout = ExternalFile(path, batch_size, num_cores, len(manifest.directions) == 2, None)
        rows = _Rows(manifest, _shards_of(manifest, pass_index, task, num_tasks), layout)
        _write_file(rows, path, fixed, report)
        num_steps[name] = rows.num_steps
    for name, steps in num_steps.items():
        info = {"filenames": [f"tfrecords/{name}tfrecords"], "num_batch": steps}
        files.write(folder / "tfrecords" / f"record_info-{name}json", json.dumps(info))
    files.copy(manifest.tokenizer_path, folder / manifest.tokenizer["file"])
    files.write(folder / _CORPUS_INFO, json.dumps(_corpus_info(manifest, batch_size, num_cores, fixed)))
    steps = sum(num_steps.values())
    records = steps * batch_size
    return Written([f"{name}tfrecords" for name in num_steps], steps, records, manifest.records - records)


def _check_output(manifest: Manifest, folder: epath.Path) -> None:
    """Raises UserError if a set cannot be written to the folder, or not in this format."""
    folders.claim(folder, flag="--output_dir")
    if manifest.objective != "permutation":
        raise UserError(
            f"{manifest.folder} is for the {manifest.objective} objective, expected permutation: the "
            "original knows no other"
        )
    if (folder / _CORPUS_INFO).exists():
        raise UserError(f"{folder} holds the original's records already: choose another --output_dir")


def _shards_of(manifest: Manifest, pass_index: int, task: int, num_tasks: int) -> list[Shard]:
    shards = [shard for shard in manifest.shards if shard.pass_index == pass_index]
    shards.sort(key=lambda shard: shard.slice_index)
    first, last = (len(shards) * number // num_tasks for number in (task, task + 1))
    return shards[first:last]


def _corpus_info(manifest: Manifest, batch_size: int, num_cores: int, fixed: int | None) -> dict[str, Any]:
    return {
        "vocab_size": manifest.tokenizer["vocab_size"],
        "bsz_per_host": batch_size,
        "num_core_per_host": num_cores,
        "seq_len": manifest.seq_len,
        "reuse_len": manifest.reuse_len,
        "uncased": manifest.cleaning["lower"],
        "bi_data": len(manifest.directions) == 2,
        "mask_alpha": manifest.mask["alpha"],
        "mask_beta": manifest.mask["beta"],
        "num_predict": fixed,
        "use_eod": manifest.use_eod,
        "sp_path": manifest.tokenizer["file"],
        "input_glob": manifest.folder.name,
    }


def _name(manifest: Manifest, fixed: int | None, batch_size: int, task: int, pass_id: int) -> str:
    """Returns the original's name of a file, without its suffix."""
    return (
        f"{manifest.split}-{task}-{pass_id}.bsz-{batch_size}.seqlen-{manifest.seq_len}"
        f".reuse-{manifest.reuse_len}.{'uncased.' if manifest.cleaning['lower'] else ''}"
        f"{'bi' if len(manifest.directions) == 2 else 'uni'}."
        f"alpha-{manifest.mask['alpha']}.beta-{manifest.mask['beta']}."
        f"{'' if fixed is None else f'fnp-{fixed}.'}"
    )


class _Rows:
    """The records of some shards, distributed to the rows of batches; each row has `num_steps` records."""

    def __init__(self, manifest: Manifest, shards: Sequence[Shard], layout: ExternalFile):
        self.manifest = manifest
        self._pieces = {  # by direction: (shard, its first record, number of records)
            False: [(shard, 0, shard.forward_segments) for shard in shards],
            True: [(shard, shard.forward_segments, shard.backward_segments) for shard in shards],
        }
        self._backward = layout.backward
        counts = {way: sum(piece[2] for piece in pieces) for way, pieces in self._pieces.items()}
        rows = {way: int((layout.backward == way).sum()) for way in (False, True)}
        self.num_steps = min(counts[way] // rows[way] for way in rows if rows[way])
        if not self.num_steps:
            raise UserError(
                f"{layout.path.name} would get {counts[False]} records read forward and {counts[True]} read "
                f"backward, too few for a batch of {layout.batch_size} rows: use a smaller --batch_size, or "
                "fewer --num_tasks"
            )
        order = np.where(layout.backward, np.cumsum(layout.backward), np.cumsum(~layout.backward)) - 1
        self._first = order * self.num_steps

    def read(self, step: int, count: int) -> dict[str, np.ndarray]:
        """Returns the columns of `count` steps: name -> [S, B, ...], and `after` (the token after A)."""
        rows = [self._read_row(row, step, count) for row in range(len(self._first))]
        return {name: np.stack([row[name] for row in rows], 1) for name in rows[0]}

    def _read_row(self, row: int, step: int, count: int) -> dict[str, np.ndarray]:
        begin = int(self._first[row]) + step
        more = min(1, self.num_steps - step - count)  # the next record shows what follows A
        parts = list(self._records(bool(self._backward[row]), begin, begin + count + more))
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        columns["after"] = _token_after_a(columns, self.manifest.reuse_len)
        return {name: values[:count] for name, values in columns.items()}

    def _records(self, backward: bool, begin: int, end: int) -> Iterator[dict[str, np.ndarray]]:
        """Yields the columns of a direction's records from `begin` to `end`, shard by shard."""
        for shard, first, count in self._pieces[backward]:
            low, high = max(0, begin), min(count, end)
            if low < high:
                path = self.manifest.path(shard)
                yield read_shard(path, self.manifest.spec, first + low, high - low)
            begin, end = begin - count, end - count


def _token_after_a(columns: dict[str, np.ndarray], reuse_len: int) -> np.ndarray:
    """Returns int [S], the token that follows A in the text, CLS where no record shows it."""
    ids = columns["input_ids"].astype(np.int64)
    a_len = np.argmax(ids[:, reuse_len:] == SEP_ID, axis=1)
    continues = (columns["segment"][1:] == columns["segment"][:-1] + 1) & (a_len[:-1] < reuse_len)
    after = np.full(len(ids), CLS_ID)
    rows = np.flatnonzero(continues)
    after[rows] = ids[rows + 1, a_len[rows]]
    return after


def _write_file(rows: _Rows, path: epath.Path, fixed: int | None, report: Callable[[int], None]) -> None:
    seq_len, batch_size = rows.manifest.seq_len, len(rows._first)
    at_once = max(1, _WRITE_RECORDS // batch_size)
    with files.temporary(path) as unfinished, tf.io.TFRecordWriter(str(unfinished)) as writer:
        for step in range(0, rows.num_steps, at_once):
            columns = rows.read(step, min(at_once, rows.num_steps - step))
            flat = {name: v.reshape(-1, *v.shape[2:]) for name, v in columns.items()}
            ids = flat["input_ids"].astype(np.int64)
            positions = flat["target_positions"].astype(np.int64)
            is_masked = np.zeros((len(ids), seq_len + 1), np.int64)
            np.put_along_axis(is_masked, positions, 1, axis=1)  # -1, an empty slot, goes to the extra column
            is_masked = is_masked[:, :-1]
            special = (ids == SEP_ID) | (ids == CLS_ID)
            if fixed is not None:
                missing = fixed - is_masked.sum(axis=1, keepdims=True)
                if missing.max() > NUM_SPECIAL:
                    raise UserError(f"a record has {fixed - missing.max()} targets, expected {fixed}")
                is_masked |= special & (np.cumsum(special, axis=1) <= missing)
            target = np.append(ids[:, 1:], np.full((len(ids), 1), CLS_ID), axis=1)
            a_end = np.argmax(special, axis=1) - 1
            target[np.arange(len(ids)), a_end] = flat["after"]
            target[:, -3] = CLS_ID  # what follows B is not known
            features = (ids, target, flat["segment_ids"], is_masked, flat["next_sentence"][:, None])
            names = ("input", "target", "seg_id", "is_masked", "label")
            for record in zip(*(values.tolist() for values in features), strict=True):
                feature = {
                    name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                    for name, values in zip(names, record, strict=True)
                }
                writer.write(
                    tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
                )
            report(len(ids))


def lost(manifest: Manifest, written: Written) -> list[str]:
    """Returns notes on what the original's format cannot hold of a set."""
    notes = [
        "factorization orders are not in the files: the original draws them whenever it reads",
        "where streams begin is not in the files: the original carries memory on from stream to stream",
        "train with the same batch size, cores and data flags: the original finds files by them, and reads "
        "backward by row",
    ]
    if manifest.functional_tokens != "ordered":
        notes.append("SEP and CLS are context in this set; the original gives them positions in the order")
    if manifest.cleaning["keep_accents"]:
        notes.append(
            "that accents were kept is not in the files: convert them back with --keep_accents, and keep "
            "accents in the texts that the model reads"
        )
    if written.dropped:
        notes.append(
            f"{written.dropped:,} records of {manifest.records:,} fill no step of all rows: left out"
        )
    return notes
