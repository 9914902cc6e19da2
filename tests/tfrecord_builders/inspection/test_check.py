"""Sound sets are sound, and what is wrong is found, named and placed."""

import copy
import dataclasses
import shutil

import numpy as np
import pytest

from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders.inspection import check as inspect_check
from tfrecord_builders.inspection import invariants
from tfrecord_builders.inspection.recovered_text import RecoveredText
from xlnet_tf.errors import UserError
from xlnet_tf.records.shards import ShardWriter, framed_bytes, read_shard
from xlnet_tf.text.special_tokens import PAD_ID, SEP_ID, UNK_ID

MUTATIONS = 100


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "denoising"},
        {"objective": "autoregressive"},
        {"compat": True},
        {"functional_tokens": "context", "perm_size": 4},
        {"bidirectional": False, "reuse_len": 12, "perm_size": 4, "num_passes": 2, "use_eod": False},
        {"bidirectional": False, "slice_mb": 0.001, "stream_segments": 1, "span_mode": "single"},
        {"bidirectional": False, "slice_mb": 0.001, "reuse_len": 4, "perm_size": 4},
    ],
)
def test_sound_sets_are_sound(build, tmp_path, changes):
    (tmp_path / "corpus.txt").write_text(make_text(100))
    manifest = build(tmp_path / "set", input=[str(tmp_path / "corpus.txt")], **changes)
    report = inspect_check.check(manifest)
    assert report.sound and "are sound" in str(report), str(report)
    assert (report.records, report.shards) == (manifest.records, len(manifest.shards))
    if changes == {"objective": "autoregressive"}:
        assert manifest.num_predict == manifest.seq_len - 3


@pytest.fixture
def rewrite(small_records, tmp_path):
    """Returns a function that copies a set, with changed columns in its first shard, checksums and all."""

    def rewrite(change, records=small_records):
        folder = tmp_path / "copy"
        shutil.copytree(records.folder, folder)
        shard, *others = records.shards
        columns = copy.deepcopy(read_shard(records.path(shard), records.spec))
        change(columns)
        with ShardWriter(folder / shard.file, records.spec) as writer:
            writer.write(columns)
        shards = (dataclasses.replace(shard, sha256=writer.sha256), *others)
        manifest = dataclasses.replace(records, shards=shards, folder=type(records.folder)(folder))
        manifest.save()
        return manifest

    return rewrite


def value(name, place, new):
    def change(columns):
        columns[name][place] = new

    return change


def swap_order(columns):
    a, b = columns["target_positions"][9][:2]
    columns["permutation_rank"][9, [a, b]] = columns["permutation_rank"][9, a]


def repeat_target(columns):
    columns["target_positions"][9, 1] = columns["target_positions"][9, 0]


def unhide_target(columns):
    columns["permutation_rank"][9, columns["target_positions"][9][0]] = 0


def flip_label(columns):
    columns["next_sentence"][4] = 1 - columns["next_sentence"][4]


def leave_no_part(position):
    """SEP where the second part has no place left, or where it begins and the first one has none."""

    def change(columns):
        ids = columns["input_ids"][4]
        ids[np.flatnonzero(ids == SEP_ID)[0]], ids[position] = ids[position], SEP_ID

    return change


@pytest.mark.parametrize(
    "change,invariant,record,found,expected",
    [
        (swap_order, "order: a permutation", 9, "ranks ", "distinct ranks"),
        (unhide_target, "order: blocks of 16 keep their order", 9, "0 at position", "inside of its block"),
        (value("target_positions", (9, -1), 31), "special tokens as targets", 9, "3 at position 31", "piece"),
        (value("target_positions", (9, -1), -1), "number of targets", 9, "and 1 in the second", "3 and 2"),
        (value("target_positions", (9, -1), 32), "target_positions", 9, " 32", "below 32"),
        (repeat_target, "target_positions", 9, " ", "ascending"),
        (value("input_ids", (4, 0), 199), "text that continues from record to record", 4, "199 at", ""),
        (value("input_ids", (4, 31), 9), "segment layout", 4, "CLS at []", "CLS at 31"),
        (leave_no_part(29), "segment layout", 4, "SEP at [29, 30]", "SEP between 17 and 28"),
        (leave_no_part(16), "segment layout", 4, "SEP at [16, 30]", "SEP between 17 and 28"),
        (value("input_ids", (4, 3), PAD_ID), "symbols that no text has", 4, "5 at position 3", "a piece"),
        (value("input_ids", (4, 3), 200), "id in the vocabulary", 4, "200 at position 3", "0 to 199"),
        (value("segment_ids", (4, 30), 0), "segment_ids", 4, "0 at position 30", "1"),
        (value("direction", 4, -1), "direction", 4, "-1", "1"),
        (value("stream", 4, 3), "stream", 4, "pass 0, forward, number 3 of slice 0", ", number 0 of slice 0"),
        (value("segment", 4, 3), "segment", 4, "3", "4"),
        (value("document_offset", 1, 17), "document_offset", 1, "17", ""),
        (value("next_sentence", 4, -1), "next_sentence", 4, "-1", "0"),
        (flip_label, "", 4, "", ""),
    ],
)
def test_faults_are_reported_with_their_location(rewrite, change, invariant, record, found, expected):
    manifest = rewrite(change)
    report = inspect_check.check(manifest)
    kind = next(name for name in report.failures if name.startswith(invariant))
    failure = next(failure for failure in report.failures[kind] if failure.record == record)
    assert failure.file == manifest.shards[0].file
    assert failure.byte == record * framed_bytes(manifest.spec)
    assert found in failure.found and expected in failure.expected
    assert f"record {record} (byte {failure.byte})" in str(report) and not report.sound


def test_a_single_token_from_nowhere_is_reported(rewrite):
    def change(columns):
        ids = columns["input_ids"][4]
        separator = np.flatnonzero(ids == SEP_ID)[0]
        ids[separator:28] = ids[separator + 1 : 29]
        ids[28:30] = SEP_ID, np.setdiff1d(np.arange(9, 200), columns["input_ids"])[0]
        columns["segment_ids"][4, separator:29] = 0
        columns["next_sentence"][4] = 0

    (failure,) = inspect_check.check(rewrite(change)).failures["B that next_sentence says is from elsewhere"]
    assert failure.record == 4 and failure.found.startswith("a B of 1 tokens")


def test_faults_of_backward_records_are_located(small_records, rewrite):
    record = small_records.shards[0].forward_segments + 8

    def change(columns):
        columns["segment"][record], columns["stream"][record + 1] = 5, 5 << 44
        columns["input_ids"][4, 3] = UNK_ID  # is one of the vocabulary

    report = inspect_check.check(rewrite(change))
    [failure] = report.failures["segment"]
    assert (failure.record, failure.found, failure.expected) == (record, "5", "2")
    assert report.failures["stream"][0].found == "pass 5, backward, number 0 of slice 0"
    assert "id in the vocabulary" not in report.counts


def test_without_ends_of_documents_offsets_grow_or_begin_anew(build, rewrite, tmp_path):
    records = build(tmp_path / "records", use_eod=False)
    # Record 6 begins a stream.
    report = inspect_check.check(rewrite(value("document_offset", [2, 6], 17), records))
    second, sixth = (f for f in report.failures["document_offset"] if f.record in (2, 6))
    assert second.found == sixth.found == "17" and sixth.expected == "0"


def test_all_failures_are_counted_and_a_few_shown(rewrite):
    report = inspect_check.check(rewrite(value("segment_ids", (slice(2, 40), 0), 2)))
    assert report.counts == {"segment_ids": 38}
    (kind,) = report.to_dict()["failures"]
    assert kind["count"] == 38 and [first["record"] for first in kind["first"]] == [2, 3, 4]
    assert "and 35 more" in str(report)


def test_damaged_files(rewrite):
    manifest = rewrite(lambda columns: None)
    assert inspect_check.check(manifest).sound
    first, second, third = (manifest.path(shard) for shard in manifest.shards[:3])
    data = bytearray(first.read_bytes())
    data[3 * framed_bytes(manifest.spec) + 100] ^= 1
    first.write_bytes(data)
    second.unlink()
    third.write_bytes(third.read_bytes()[:-1])
    report = inspect_check.check(manifest, num_workers=2)
    assert report.counts == {"frame checksum": 1, "file sha256": 2, "files": 1, "file size": 1}
    assert report.failures["frame checksum"][0].record == 3
    assert report.failures["files"][0].file == manifest.shards[1].file
    manifest = dataclasses.replace(manifest, tokenizer={**manifest.tokenizer, "sha256": "ab"})
    with pytest.raises(UserError, match=r"tokenizer\.sha256"):
        inspect_check.check(manifest)


@pytest.mark.parametrize(
    "path",
    ["targets", "text tokens", "text unknown", "text word_starts", "text documents", "tokens 0 in",
     "tokens 0 written", "tokens 1 direction", "tokens 1 pass"],
)  # fmt: skip
def test_statistics_are_counted_again(small_records, path):
    shard, *others = small_records.shards
    place = statistics = copy.deepcopy(shard.statistics)
    *keys, last = (int(key) if key.isdigit() else key for key in path.split())
    for key in keys:
        place = place[key]
    place[last] += 1
    shards = (dataclasses.replace(shard, statistics=statistics), *others)
    report = inspect_check.check(dataclasses.replace(small_records, shards=shards))
    assert any(name.startswith("statistics.") for name in report.counts), str(report)
    assert shard.file in [failure.file for of_kind in report.failures.values() for failure in of_kind]


def test_the_manifest_agrees_with_itself(small_records):
    statistics = {**small_records.statistics, "tokens_written": 1}
    report = inspect_check.check(dataclasses.replace(small_records, statistics=statistics))
    assert list(report.counts) == ["statistics.tokens_written"]
    shards = [shard for shard in small_records.shards if (shard.pass_index, shard.slice_index) != (1, 0)]
    report = inspect_check.check(dataclasses.replace(small_records, shards=tuple(shards)))
    assert "passes [0] of corpus shard 0" in report.failures["passes"][0].found


def test_tokens_beyond_the_text_are_left_out(small_records):
    shard = small_records.shards[0]
    columns = read_shard(small_records.path(shard), small_records.spec)
    forward = np.arange(shard.records) < shard.forward_segments
    tokens = [account | {"in": 20} for account in shard.statistics["tokens"]]
    short = dataclasses.replace(shard, statistics=shard.statistics | {"tokens": tokens})
    whole, found = (RecoveredText(small_records, s, columns, forward).tokens for s in (shard, short))
    np.testing.assert_array_equal(found, whole[:20])


def test_faults_of_the_order_are_reported_for_their_records_only(build, tmp_path):
    """In one record the first part's blocks have two orders, in another a rank is of another block."""
    manifest = build(tmp_path, perm_size=4)
    shard = manifest.shards[0]
    columns = read_shard(manifest.path(shard), manifest.spec)
    rank = columns["permutation_rank"] = columns["permutation_rank"].copy()
    blocks = rank[:, : manifest.reuse_len].reshape(shard.records, -1, 4).astype(int)  # 0: context
    blocks -= 4 * np.arange(blocks.shape[1])[:, None]  # 1 to 4 in every block, where it was not 0
    twice = (blocks > 0).sum(axis=1) > 1
    unused = np.array([[number not in record for number in range(1, 5)] for record in blocks])
    first = np.flatnonzero(twice.any(axis=1) & unused.any(axis=1))[0]
    offset, number = twice[first].argmax(), 1 + unused[first].argmax()
    block = np.flatnonzero(blocks[first, :, offset] > 0)[0]
    rank[first, 4 * block + offset] = 4 * block + number
    second = first + 2
    position = np.flatnonzero(rank[second, :8] > 0)[0]
    rank[second, position] += 4 if position < 4 else -4
    text = RecoveredText(manifest, shard, columns, np.ones(shard.records, bool))
    assert {
        b.invariant: b.records.tolist() for b in invariants.broken_records(manifest, shard, columns, text)
    } == {"order: a permutation": [first], "order: blocks of 4 keep their order": [second]}


def mutate(rng, columns, spec):
    """Changes one value of one record; returns (column, place, value before, value now)."""
    names = sorted(columns)
    name = names[rng.integers(len(names))]
    values = columns[name]
    record = int(rng.integers(len(values)))
    place = (record,) if values.ndim == 1 else (record, int(rng.integers(values.shape[1])))
    old = int(values[place])
    limits = {"input_ids": (0, spec.vocab_size), "permutation_rank": (0, 2 * spec.seq_len)}
    low, high = limits.get(name, (-2, spec.seq_len + 2))
    low = max(low, np.iinfo(values.dtype).min)
    while (new := int(rng.integers(low, high))) == old:
        pass
    values[place] = new
    return name, place, old, new


def test_mutations_are_found(small_records):
    """One changed value in a set with right checksums; what is not found is a legal set again."""
    manifest, shard = small_records, small_records.shards[0]
    columns = read_shard(manifest.path(shard), manifest.spec)
    rng = np.random.default_rng(5)
    for _ in range(MUTATIONS):
        changed = {name: values.copy() for name, values in columns.items()}
        name, (record, *_), old, new = mutate(rng, changed, manifest.spec)
        text = RecoveredText(manifest, shard, changed, np.ones(shard.records, bool))
        broken = [b.records for b in invariants.broken_records(manifest, shard, changed, text)]
        if name == "permutation_rank" and not broken:
            assert is_legal(changed["permutation_rank"][record], old, new, manifest.reuse_len)
        elif name == "input_ids":  # the others that have this token may be blamed
            assert broken
        else:
            assert record in np.concatenate(broken), (name, record, old, new)


def is_legal(rank, old, new, reuse_len):
    """Whether a place in the order was exchanged for a free one of the same part."""
    part = rank[:reuse_len] if old <= reuse_len else rank[reuse_len:]
    return (new <= reuse_len) == (old <= reuse_len) and np.count_nonzero(part == new) == 1
