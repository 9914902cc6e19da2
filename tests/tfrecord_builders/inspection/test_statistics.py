"""Figures counted one by one, and the picture of their distributions."""

import numpy as np
import pytest

from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders.inspection import plot_distributions
from tfrecord_builders.inspection import statistics as inspect_statistics
from xlnet_tf.records import ranks
from xlnet_tf.records.shards import read_shard
from xlnet_tf.records.spans import target_flags
from xlnet_tf.text.special_tokens import SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer


@pytest.fixture(scope="module")
def statistics(small_records):
    return inspect_statistics.count(small_records)


@pytest.fixture(scope="module")
def all_columns(small_records):
    """All shards of pass 1, read backward."""
    shards = [shard for shard in small_records.shards if shard.pass_index == 1]
    parts = [read_shard(small_records.path(s), small_records.spec, s.forward_segments) for s in shards]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_each_pass_and_direction(small_records, statistics, all_columns):
    keys = [(reading["pass"], reading["direction"]) for reading in statistics["readings"]]
    assert keys == [(0, 1), (0, -1), (1, 1), (1, -1)]
    found = statistics["readings"][3]
    ids, rank = all_columns["input_ids"], all_columns["permutation_rank"]
    assert (found["records"], found["streams"]) == (len(ids), len(np.unique(all_columns["stream"])))
    assert found["next_sentence"] == pytest.approx(all_columns["next_sentence"].mean())
    assert found["targets_a_record"] == found["fewest_targets"] == small_records.num_predict
    a_len = [np.flatnonzero(row == SEP_ID)[0] - small_records.reuse_len for row in ids]
    assert found["a_tokens"] == pytest.approx(np.mean(a_len))
    assert found["a_tokens"] + found["b_tokens"] == pytest.approx(small_records.seq_len // 2 - 3)
    is_target = target_flags(all_columns)
    _, query = ranks.expand(rank, is_target)
    assert found["seen_by_a_target"] == pytest.approx(query[is_target].mean())
    assert found["tokens_in"] == found["tokens_written"] + sum(found["tokens_dropped"].values())
    assert sum(reading["records"] for reading in statistics["readings"]) == small_records.records
    density = np.array(statistics["target_density"])
    assert density.sum() == pytest.approx(small_records.num_predict)
    assert density[-2:].tolist() == [0, 0] and density[: small_records.reuse_len].sum() == pytest.approx(3)
    assert sum(statistics["a_lengths"].values()) == small_records.records


def test_spans_are_of_whole_words(small_records, statistics, all_columns):
    """Spans of the backward records, counted in the text's own order, are among those counted."""
    starts = XLNetTokenizer(model_file=small_records.tokenizer_path).word_starts
    lengths = []
    for ids, flags in zip(all_columns["input_ids"], target_flags(all_columns), strict=True):
        for part in (slice(0, 16), slice(16, 32)):
            words, before = 0, None
            for token, target in [*zip(ids[part], flags[part], strict=True), (0, False)]:
                if target:  # read backward: a start ends its word
                    words += before is None or starts[before]
                elif before is not None:
                    lengths.append(words)
                    words = 0
                before = token if target else None
    counted, total = np.bincount(lengths), sum(statistics["spans"].values())
    assert all(count <= statistics["spans"].get(str(n), 0) for n, count in enumerate(counted.tolist()))
    assert counted[1] / counted.sum() == pytest.approx(statistics["spans"]["1"] / total, abs=0.03)
    expected = statistics["expected_spans"]
    assert expected["1"] == pytest.approx(5 * expected["5"]) and sum(expected.values()) == pytest.approx(1)


def test_tables_and_workers(small_records, statistics):
    assert inspect_statistics.count(small_records, num_workers=2) == statistics
    text = inspect_statistics.table({**statistics, "warnings": ["only 3 streams"]})
    parts = ("backward", "43.8%", "from position 30", f"{small_records.statistics['tokens']:,}")
    assert all(part in text for part in (*parts, "WARNING: only 3 streams"))


@pytest.mark.parametrize(
    "changes", [{"objective": "autoregressive"}, {"span_mode": "single", "use_eod": False}]
)
def test_other_sets(build, tmp_path, monkeypatch, changes):
    from matplotlib.figure import Figure

    (tmp_path / "corpus.txt").write_text(make_text(100))
    changes = {"input": [str(tmp_path / "corpus.txt")], "bidirectional": False, **changes}
    statistics = inspect_statistics.count(build(tmp_path / "set", **changes))
    assert [reading["direction"] for reading in statistics["readings"]] == [1]
    assert list(statistics["expected_spans"]) == ([] if "objective" in changes else ["1"])
    assert "share of targets by position" in inspect_statistics.table(statistics)
    if "objective" in changes:  # to render a picture takes seconds: once
        monkeypatch.setattr(Figure, "savefig", lambda *_, **__: (tmp_path / "a.png").touch())
    plot_distributions.draw(statistics, str(tmp_path / "a.png"))
    assert "objective" in changes or (tmp_path / "a.png").stat().st_size > 10_000


def test_the_picture_has_what_was_counted(statistics, monkeypatch, tmp_path):
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    plot_distributions.draw(statistics, str(tmp_path / "picture.png"))
    documents, segments, density, spans = figures[0].axes
    assert sum(bar.get_height() for bar in documents.patches) == statistics["text"]["documents"]
    assert segments.patches[0].get_data().values.sum() == sum(statistics["a_lengths"].values())
    np.testing.assert_allclose(density.patches[0].get_data().values, statistics["target_density"])
    curve = spans.lines[0].get_ydata()
    np.testing.assert_allclose(curve, (1 / np.arange(1, 6)) / (1 / np.arange(1, 6)).sum())
    assert spans.patches[0].get_height() == pytest.approx(
        statistics["spans"]["1"] / sum(statistics["spans"].values())
    )
