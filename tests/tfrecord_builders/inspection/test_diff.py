"""tfrecord_builders/inspection/diff.py: two sets, setting by setting and record by record."""

import json

from tfrecord_builders.inspection import diff as inspect_diff
from xlnet_tf.records.shards import read_shard


def test_another_seed(small_records, build, tmp_path):
    other = build(tmp_path, num_passes=1, seed=1)
    result = json.loads(json.dumps(inspect_diff.compare(small_records, other)))
    assert result["settings"] == {"num_passes": [2, 1], "seed": [0, 1]}
    assert result["statistics"]["tokens_in"][0] == 2 * result["statistics"]["tokens_in"][1]
    half = len(other.shards)
    assert result["shards"] == {"different": half, "only in the first": half}
    assert result["records"]["compared"] == other.records and not result["same"]

    counts = dict.fromkeys(("permutation_rank", "next_sentence"), 0)
    for shard, their in zip(small_records.shards[:half], other.shards, strict=True):
        mine = read_shard(small_records.path(shard), small_records.spec)
        others = read_shard(other.path(their), other.spec)
        for name in counts:
            differs = (mine[name] != others[name]).reshape(len(mine[name]), -1)
            counts[name] += int(differs.any(axis=1).sum())
    assert {name: result["columns"][name]["records"] for name in counts} == counts
    assert not {"stream", "segment", "direction", "document_offset"} & set(result["columns"])

    example = result["example"]
    mine = read_shard(small_records.path(small_records.shards[0]), small_records.spec, example["record"], 1)
    assert example["targets"][0] == mine["target_positions"][0].tolist()
    where = example["columns"]["permutation_rank"]
    assert where["values"][0] == mine["permutation_rank"][0, where["first"]] != where["values"][1]
    text = inspect_diff.table(result)
    assert "seed: 0 | 1" in text and "the first that differs" in text and "the sets differ" in text
    assert text.count("[") >= 2 * small_records.num_predict


def test_sets_with_other_num_predict_are_compared_but_not_other_lengths(small_records, build, tmp_path):
    fewer = build(tmp_path / "fewer", num_passes=2, num_predict=3)
    result = inspect_diff.compare(small_records, fewer)
    assert result["settings"]["num_predict"] == [5, 3]
    assert result["columns"]["targets"]["records"] == small_records.records
    assert "input_ids" not in result["columns"]  # cut by the same draws
    longer = build(tmp_path / "longer", seq_len=40)
    result = inspect_diff.compare(longer, small_records)
    assert result["records"]["compared"] == 0 and result["example"] is None
    assert any("not comparable" in name for name in result["shards"])
    assert "only in the second" in inspect_diff.table(result)


def test_streams_are_named(small_records, build, tmp_path):
    other = build(tmp_path, stream_segments=2)
    result = inspect_diff.compare(small_records, other)
    assert result["example"]["columns"]["stream"]["values"] == [0, 1]
    assert (
        "stream: pass 0, forward, number 0 of slice 0 | pass 0, forward, number 1 of slice 0 at position 0"
        in inspect_diff.table(result)
    )
