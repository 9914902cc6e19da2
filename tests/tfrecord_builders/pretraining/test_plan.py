"""Builds that choose documents: deduplication, a training and a held-out set, what becomes of documents."""

import json

import pytest

from tests.helpers.records.builders import contents
from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders.inspection.check import check
from tfrecord_builders.pretraining import report as pretraining_report
from tfrecord_builders.pretraining import worker
from tfrecord_builders.pretraining.build import build_sets
from xlnet_tf.errors import UserError


@pytest.fixture(scope="module")
def options(options, tmp_path_factory):
    """Returns a function that makes options; the corpus has repeated and empty documents, in two formats."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.txt").write_text(make_text(400) + "\n" + make_text(50))
    others = [*make_text(200, seed=2).strip().split("\n\n"), "", " \n"]
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in others))

    settings = {"input": [str(folder)], "dev_fraction": 0.2, "dedup": True}
    return lambda output, **changes: options(output, **settings | changes)


@pytest.fixture(scope="module")
def sets(options, tmp_path_factory):
    return build_sets(options(tmp_path_factory.mktemp("records")))


def test_every_document_is_accounted_for(sets, options, tmp_path):
    train, dev = (manifest.statistics for manifest in sets)
    for statistics in (train, dev):
        left_out = statistics["documents_dropped"]
        assert statistics["documents_in"] == 652 == statistics["documents"] + sum(left_out.values())
        assert left_out["empty"] == 2 and 0 < statistics["short_documents"] < statistics["documents"]
        short = sum(n for length, n in statistics["document_lengths"].items() if int(length) < 16)
        assert statistics["short_documents"] >= short
    assert train["documents"] + dev["documents"] == 600
    assert train["duplicate_documents"] + dev["duplicate_documents"] == 50
    assert train["documents_dropped"]["duplicate"] == train["duplicate_documents"]
    # Without choosing, the same documents go into one set, and the equal ones are counted all the same.
    (one,) = build_sets(options(tmp_path, dev_fraction=0, dedup=False))
    statistics = one.statistics
    assert one.folder.name == tmp_path.name and one.documents["side"] == ""
    assert (statistics["documents_in"], statistics["documents"]) == (652, 650)
    assert statistics["duplicate_documents"] == 50
    assert statistics["documents_dropped"] == {"empty": 2, "duplicate": 0, "other_set": 0}
    assert train["tokens"] + dev["tokens"] < statistics["tokens"]


@pytest.mark.parametrize("borders", ["blank_lines", "files"])
def test_a_document_that_slices_cut_counts_once(options, tmp_path, borders):
    documents = [make_text(30, seed=seed).replace("\n\n", "\n") for seed in range(6)] + ["Last one.\n"]
    (tmp_path / "text").mkdir()
    if borders == "files":
        for number, document in enumerate(documents):
            (tmp_path / "text" / f"{number}.txt").write_text(document)
    else:
        (tmp_path / "text" / "all.txt").write_text("\n".join(documents))
    changes = {"input": [str(tmp_path / "text")], "slice_mb": 0.001, "documents": borders}
    changes["bidirectional"] = False
    train, dev = build_sets(options(tmp_path / "two", dev_fraction=0.5, **changes))
    (one,) = build_sets(options(tmp_path / "one [1]", dev_fraction=0, dedup=False, **changes))
    assert len(train.shards) > 2 * len(documents)
    for statistics in (train.statistics, dev.statistics, one.statistics):
        dropped = statistics["documents_dropped"]
        assert statistics["documents_in"] == len(documents) == statistics["documents"] + sum(dropped.values())
        assert dropped["empty"] == dropped["duplicate"] == 0
    assert train.statistics["documents"] + dev.statistics["documents"] == one.statistics["documents"]
    assert dev.statistics["documents"] > 0 and check(dev).sound and check(one).sound
    assert f"{one.statistics['documents']} of 7 (" in pretraining_report.summary(one)


def test_each_set_resumes_after_an_interruption(sets, options, tmp_path, monkeypatch):
    real, build_shard, calls, built = worker.build_job, worker._build_shard, [], []

    def interrupted(job):
        calls.append((job.manifest.split, job.corpus_shard.index))
        if len(calls) == 8:
            raise KeyboardInterrupt
        return real(job)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(worker, "build_job", interrupted)
        build_sets(options(tmp_path))
    assert {split for split, _ in calls} == {"train", "dev"} and not list(tmp_path.rglob("manifest.json"))
    monkeypatch.setattr(worker, "_build_shard", lambda *a: built.append(a[0].split) or build_shard(*a))
    build_sets(options(tmp_path))
    assert len(built) == len(sets[0].shards) + len(sets[1].shards) - 7
    assert contents(tmp_path) == contents(sets[0].folder.parent)
    built.clear()
    (tmp_path / "dev" / sets[1].shards[0].file).unlink()  # the other set is whole and stays as it is
    before = (tmp_path / "train" / "manifest.json").stat().st_mtime_ns
    assert [manifest.split for manifest in build_sets(options(tmp_path))] == ["train", "dev"]
    assert built == ["dev"] and (tmp_path / "train" / "manifest.json").stat().st_mtime_ns == before
    assert contents(tmp_path) == contents(sets[0].folder.parent)


def test_one_set_and_two_do_not_share_a_folder(options, tmp_path):
    small = {"input": [str(tmp_path / "a.txt")], "dedup": False}
    (tmp_path / "a.txt").write_text(make_text(60))
    one, two = tmp_path / "one [1]", tmp_path / "two"

    def refused(folder, message, **options_):
        before = contents(folder)
        with pytest.raises(UserError, match=message):
            build_sets(options(folder, **small | options_))
        assert contents(folder) == before

    build_sets(options(one, dev_fraction=0, **small))
    refused(one, r"one \[1\] holds a set of its own, built without --dev_fraction")
    (one / "manifest.json").rename(one / "build.json")  # it has not ended
    refused(one, r"one \[1\] holds a set of its own")
    build_sets(options(two, **small))
    message = r"two holds a training set and a held-out set \(.*dev\) of a build with --dev_fraction=0.2"
    for overwrite in (False, True):
        refused(two, message, dev_fraction=0, overwrite=overwrite)
    (two / "dev" / "manifest.json").rename(two / "dev" / "build.json")
    refused(two, message, dev_fraction=0)
    train, dev = build_sets(options(two, **small | {"dev_fraction": 0.3}, overwrite=True))
    assert train.documents["dev_fraction"] == dev.documents["dev_fraction"] == 0.3
    # A set that was made by itself in a folder of that name is none of a build's two.
    build_sets(options(tmp_path / "three" / "dev", dev_fraction=0, split="dev", **small))
    assert build_sets(options(tmp_path / "three", dev_fraction=0, **small))[0].records


def test_bad_choices_are_refused(options, tmp_path):
    for changes, message in (
        ({"split": "dev"}, "split is 'dev', which is the held-out set's name"),
        ({"dev_fraction": 0.7}, "dev_fraction is 0.7, expected 0 to 0.5"),
        ({"dev_fraction": 1e-9}, "held out by --dev_fraction=1e-09: 0; expected some .*blank lines separate"),
        ({"input": []}, "there is no corpus"),
    ):
        with pytest.raises(UserError, match=message):
            build_sets(options(tmp_path, **changes))
        assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_one_document_cannot_be_held_out_in_part(options, tmp_path, name, monkeypatch):
    """It is refused before anything is built; with blank lines, the same command builds both sets."""
    lines = [f"Ka tomi {number} ren sol du velan quibor." for number in range(800)]
    path = tmp_path / name

    def write(*texts):
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        path.write_text(rows if name == "a.jsonl" else "\n\n".join(texts))

    write("\n".join(lines))
    one = options(tmp_path / "out", input=[str(path)], dev_fraction=0.3)
    message = "documents in the corpus: 1, held out by --dev_fraction=0.3: [01]; expected some to train on"
    with monkeypatch.context() as patched, pytest.raises(UserError, match=message):
        patched.setattr(worker, "build_job", None)
        build_sets(one)
    write("\n \n" if name == "a.txt" else "")
    with pytest.raises(UserError, match="the corpus is too small for one stream: it has 0 tokens"):
        build_sets(one)
    write(*("\n".join(lines[begin : begin + 40]) for begin in range(0, 800, 40)))
    assert [manifest.records > 0 for manifest in build_sets(one)] == [True, True]
