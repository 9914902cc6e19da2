"""Notes of an interrupted job: what is read back, and what is not believed."""

import json

from xlnet_tf import manifest_checksum
from xlnet_tf.files import sha256
from xlnet_tf.records.job_notes import JobNotes, are_intact


def test_a_note_is_read_as_it_was_written_or_not_at_all(tmp_path):
    notes = JobNotes(tmp_path, suffix=".done.json")
    assert notes.read("shard") is None
    notes.write("shard", {"rows": 3, "file": "x"})
    assert notes.read("shard") == {"rows": 3, "file": "x"}
    path = tmp_path / "shard.done.json"
    for damaged in (path.read_text().replace("3", "4"), path.read_text()[:-9], "[]", "null", "3"):
        path.write_text(damaged)
        assert notes.read("shard") is None
    path.write_text(json.dumps({"rows": 3}))  # of an earlier version, which knew no checksums
    assert notes.read("shard") == {"rows": 3}
    assert manifest_checksum.FIELD not in notes.read("shard")


def test_notes_of_another_fingerprint_are_removed(tmp_path):
    notes = JobNotes(tmp_path / "notes", {"a": 1, "b": [2]})
    notes.write("one", {})
    assert JobNotes(tmp_path / "notes", {"b": [2], "a": 1}).read("one") == {}
    assert JobNotes(tmp_path / "notes", {"a": 1}).read("one") is None
    notes.remove()
    assert not (tmp_path / "notes").exists()


def test_files_are_intact_if_all_are_as_they_were(tmp_path):
    (tmp_path / "a").write_text("1")
    digests = {"a": sha256(tmp_path / "a")}
    assert are_intact(tmp_path, digests) and not are_intact(tmp_path, digests | {"b": digests["a"]})
    (tmp_path / "a").write_text("2")
    assert not are_intact(tmp_path, digests)
