"""Notes of an unfinished build that are damaged or mixed up: the undisturbed set comes of it, or an error.

A note says that a shard is finished. The build that resumes takes the shard over, and what the note says of
it into the manifest; so a note that cannot be believed must cost its shard, never change the set.
"""

import collections
import random

import pytest

from tests.conftest import invent_texts
from tests.helpers.records import mutations
from tests.helpers.records.builders import contents
from tfrecord_builders.pretraining import output_folder
from tfrecord_builders.pretraining.build import PretrainingOptions, build_pretraining_records
from tfrecord_builders.pretraining.worker import DONE_SUFFIX
from xlnet_tf import files
from xlnet_tf.errors import UserError


class Interrupt(Exception):
    """Stands for a kill."""


@pytest.fixture
def options(tmp_path, small_tokenizer, monkeypatch):
    """A build of five slices in two passes."""
    monkeypatch.setattr(files, "_sync", lambda file: None)  # nobody pulls the plug
    texts = invent_texts(60)
    documents = ["\n".join(texts[begin : begin + 5]) for begin in range(0, len(texts), 5)]
    documents += documents[-3:]  # slices whose texts are alike
    (tmp_path / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    return PretrainingOptions(
        input=[str(tmp_path / "corpus.txt")],
        tokenizer=str(tmp_path / "spiece.model"),
        output_dir=str(tmp_path / "records"),
        seq_len=16,
        num_passes=2,
        slice_mb=0.001,
        num_workers=1,
    )


def harm(rng: random.Random, begun: dict[str, bytes], files: dict[str, bytes]) -> str:
    """Changes one of the files that a build has begun with; returns what was done."""
    notes = [name for name in begun if name.endswith(DONE_SUFFIX)]
    name, another = rng.choice(notes), rng.choice(notes)
    shard, other_shard = (each.removesuffix(DONE_SUFFIX) for each in (name, another))
    how = rng.choice(("changed", "changed", "damaged", "of another", "gone", "shard", "build.json"))
    if how == "changed":
        files[name] = mutations.under_its_checksum(rng, begun[name])
    elif how == "damaged":
        files[name] = mutations.damaged(rng, begun[name])
    elif how == "of another":
        files[name] = begun[another]
    elif how == "gone":
        files.pop(name, None)
    elif how == "shard":
        files[shard] = rng.choice((mutations.damaged(rng, begun[shard]), begun[other_shard]))
    else:
        change = rng.choice((mutations.under_its_checksum, mutations.damaged))
        files[how] = change(rng, begun[how])
    return how


@mutations.counts(40, 3000)
def test_builds_resume_from_damaged_notes(options, tmp_path, monkeypatch, count):
    folder = tmp_path / "records"

    def interrupt(manifest):
        raise Interrupt

    with monkeypatch.context() as patch, pytest.raises(Interrupt):
        patch.setattr(output_folder, "finish", interrupt)
        build_pretraining_records(options)
    begun = dict(sorted(contents(folder).items()))
    assert sum(name.endswith(DONE_SUFFIX) for name in begun) == 10 and "manifest.json" not in begun
    build_pretraining_records(options)
    expected = contents(folder)
    assert "manifest.json" in expected

    seen = collections.Counter()
    for rng in mutations.generators(count):
        files = dict(begun)
        done = {harm(rng, begun, files) for _ in range(rng.choice((1, 1, 2)))}
        for path in folder.iterdir():
            path.unlink()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        try:
            build_pretraining_records(options)
        except (UserError, OSError) as error:
            assert "build.json" in done and str(error) and len(str(error)) < 5000, done
            assert not (folder / "manifest.json").exists()
            seen["refused"] += 1
        else:
            assert contents(folder) == expected, done
            seen["equal"] += 1
    print(dict(seen))
    assert seen["equal"] > seen["refused"] > 0
