"""The page of a run: what it says, when it is written, and by whom."""

import itertools
import json
import math
import re
import types

import pytest

from xlnet_tf.pages import page
from xlnet_tf.training.report import FILE, RunReport

HOSTILE = "<script>alert('x')</script>"


def report(folder, **options):
    parts = [page.section("Mistakes"), page.table(("Text",), [[HOSTILE]])]
    task = types.SimpleNamespace(shown_metric="f1", report_parts=lambda model_dir: iter(parts))
    return RunReport(task, str(folder), 100, **options)


def history():
    yield {"step": 0, "kind": "dev", "loss": 2.0, "f1": 0.25}
    for step in range(10, 60, 10):
        rates = {"learning_rate": 1e-4, "tokens_per_second": 1000.0}
        loss = 2 - step / 50 if step != 30 else math.nan
        yield {"step": step, "kind": "train", "training_loss": loss, **rates}
    yield {"step": 50, "kind": "dev", "loss": 1.5, "f1": 0.5}


def test_a_page_shows_curves_evaluations_and_what_the_task_adds(tmp_path):
    found = report(tmp_path)
    for line in history():
        found.add(line)
    (tmp_path / "best").mkdir()
    (tmp_path / "best/metrics.json").write_text(json.dumps({"step": 50, "f1": 0.5, "dev_set": "abc"}))
    found.write()
    text = (tmp_path / FILE).read_text()
    assert "Step 50 of 100, " in text and "reload it" in text
    labels = re.findall('aria-label="([^"]+)"', text)
    assert [each.partition(":")[0] for each in labels] == ["Loss", "f1", "Learning rate", "Tokens per second"]
    assert "train from 1.8 at step 10 to 1 at step 50" in labels[0] and "dev from 2 at step 0" in labels[0]
    assert "dev from 0.25 at step 0 to 0.5 at step 50" in labels[1]
    assert f"{tmp_path}/best, of step 50" in text and "0.5000" in text
    assert "<script" not in text and "&lt;script&gt;" in text
    assert not re.search(r"(src|href)=|url\(|http", text)
    found.write("patience is used up")
    assert "patience is used up" in (tmp_path / FILE).read_text()


def test_writing_takes_a_hundredth_of_the_time_and_only_the_chief_writes(tmp_path):
    found = report(tmp_path, clock=types.SimpleNamespace(monotonic=itertools.count().__next__))
    written = []
    for _ in range(1000):
        (tmp_path / FILE).unlink(missing_ok=True)
        found.write_if_due()
        written.append((tmp_path / FILE).exists())
    assert written[0] and 5 <= sum(written) <= 15
    (tmp_path / FILE).unlink(missing_ok=True)
    found.write()  # after an evaluation, always
    assert (tmp_path / FILE).exists()
    other = report(tmp_path / "other", write=False)
    other.write_if_due()
    other.write("ended")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", ["train", "dev"])
def test_a_run_that_has_reported_little_has_a_page(tmp_path, kind):
    found = report(tmp_path)
    found.write()
    found.add({"step": 1, "kind": kind})
    found.write()
    assert "Step 1 of 100" in (tmp_path / FILE).read_text()
