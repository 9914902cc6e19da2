"""The progress bar of a run, and its history."""

import io
import re
import sys

import pytest
import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.training.progress import Progress, read_history


@pytest.mark.parametrize(
    "line",
    ["{", "5", "[]", "null", '{"stfp": 2}', '{"step": 2}', '{"step": "2", "kind": "dev"}',
     '{"step": 2, "kind": []}', "[" * 100_000],
)  # fmt: skip
def test_a_damaged_line_of_the_history_is_named(tmp_path, line):
    path = tmp_path / "history.jsonl"
    good = '{"step": 2, "kind": "train", "training_loss": 1.5}'
    path.write_text(f"{good}\n{good[:20]}")  # a killed run's last line
    assert read_history(str(path)) == [{"step": 2, "kind": "train", "training_loss": 1.5}]
    path.write_text(f"{good}\n{line}\n{good}\n")
    with pytest.raises(UserError, match="history.jsonl, line 2 is .*: expected .* train or dev"):
        read_history(str(path))


def test_progress_shows_the_dev_loss_and_the_metric_of_the_task(tmp_path, capsys):
    with Progress(str(tmp_path), tf.Variable(0, dtype=tf.int64), 10, "f1") as progress:
        progress.evaluation({"loss": tf.constant(0.672), "f1": tf.constant(0.5), "other": tf.constant(1.0)})
    assert "dev_f1=0.500, dev_loss=0.672]" in capsys.readouterr().err


def test_80_columns_have_room_for_loss_learning_rate_and_the_metric(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress(str(tmp_path), tf.Variable(12_000, dtype=tf.int64), 500_000, "score") as progress:
        progress._bar.dynamic_ncols, progress._bar.ncols = None, 80
        progress._bar.start_t -= 3600  # so that hours are left
        progress.evaluation({"loss": 0.672, "score": 0.5})
        progress.train({"training_loss": 0.5, "learning_rate": 2e-5, "tokens_per_second": 123_456.0})
    line = [line for line in re.split(r"[\r\n]+", sys.stderr.getvalue()) if "loss" in line][-1]
    assert "loss=0.500, lr=2.0e-05, dev_score=0.500" in line and len(line) <= 80
