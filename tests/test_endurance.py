"""Long work takes no more and more memory: a run of 5,000 steps, a corpus of 1 GB, 10 minutes of requests."""

import numpy as np
import pytest

from benchmarks import load as benchmark_load
from tests.helpers.serving.exports import KINDS
from tests.helpers.training import toy
from tests.helpers.training.worker import settings
from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders.pretraining import worker
from tfrecord_builders.pretraining.build import PretrainingOptions, build_pretraining_records
from xlnet_tf.serving.export import export
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.text.training import train_tokenizer
from xlnet_tf.training.progress import Progress

pytestmark = pytest.mark.long

FLAT = 30e6  # bytes: what memory may differ by from one part of the time to another


class Memory:
    """Takes the memory of this process whenever a function is called."""

    def __init__(self, patch: pytest.MonkeyPatch, holder, name: str):
        self.samples = []
        function = getattr(holder, name)

        def measured(*args, **kwargs):
            self.samples.append(benchmark_load.resident_bytes())
            return function(*args, **kwargs)

        patch.setattr(holder, name, measured)

    def growth(self) -> float:
        """Returns by how much the last quarter takes more than the second one; the first may fill caches."""
        quarters = [np.median(quarter) for quarter in np.array_split(self.samples, 4)]
        print([f"{quarter / 1e6:,.0f} MB" for quarter in quarters])
        return quarters[3] - quarters[1]


def test_a_run_of_5000_steps(tmp_path, monkeypatch):
    """Quarters are 2,500 steps apart: a batch (33 KB) or its memory (197 KB) kept by each exceeds FLAT."""
    toy.make_records(tmp_path / "records", segments=((450, 450), (250, 250)))
    toy.make_records(tmp_path / "dev", segments=((7, 5), (4, 3)), seed=1)
    params = settings(tmp_path)
    intervals = {"steps_per_loop": 20, "checkpoint_interval": 100, "validation_interval": 500}
    task = {"train_data": {"global_batch_size": 256}}
    params.override({"task": task, "trainer": {"train_steps": 5000, **intervals}})
    memory = Memory(monkeypatch, Progress, "train")
    pretraining.pretrain(params, str(tmp_path / "model"))
    assert len(memory.samples) == 250 and memory.growth() < FLAT


def test_a_corpus_of_1_gb(tmp_path, monkeypatch):
    text = make_text(20_000)
    with (tmp_path / "corpus.txt").open("w") as file:
        while file.tell() < 1e9:
            file.write(text + "\n")
    tokenizer = train_tokenizer(text.splitlines()[:5000], 200)
    (tmp_path / "spiece.model").write_bytes(tokenizer.model_proto)
    build = worker.build_job

    def build_and_forget(job):
        """The disk need not hold all records."""
        result = build(job)
        for shard in result["shards"]:
            (tmp_path / "records" / shard.file).write_bytes(b"")
        return result

    monkeypatch.setattr(worker, "build_job", build_and_forget)
    memory = Memory(monkeypatch, worker, "build_job")
    files = {"input": [str(tmp_path / "corpus.txt")], "tokenizer": str(tmp_path / "spiece.model")}
    where = {"output_dir": str(tmp_path / "records"), "seq_len": 512, "num_workers": 1}
    manifest = build_pretraining_records(PretrainingOptions(**files, **where))
    assert manifest.statistics["bytes"] > 1e9
    assert len(memory.samples) > 200 and memory.growth() < FLAT


def test_8_clients_for_10_minutes(tmp_path, small_tokenizer):
    kind = KINDS["classification"]
    model = export(kind.module(kind.model(small_tokenizer), small_tokenizer), str(tmp_path / "model"))
    report = benchmark_load.measure(model, make_text(300), benchmark_load.Load(600, clients=8))
    print({name: report[name] for name in ("requests", "rows", "errors", "seconds", "growth")})
    assert report["requests"] > 1000 and not report["errors"] and report["growth"] < FLAT
