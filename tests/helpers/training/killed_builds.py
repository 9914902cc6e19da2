"""Kills builds and starts them again: at each of their file operations, and at random moments.

python -m tests.helpers.training.killed_builds FOLDER TEXT TOKENIZER KILLS EVERY

One process that has loaded all modules, but no TensorFlow, forks a child for each build, which costs next to
nothing. Prints what was done, as json; ends with an error as soon as something is not as it must be.
"""

import dataclasses
import gc
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time
import traceback

from tfrecord_builders.pretraining.build import PretrainingOptions, build_pretraining_records
from tfrecord_builders.pretraining.worker import DONE_SUFFIX
from xlnet_tf import files
from xlnet_tf.records.manifest import Manifest

_OPERATIONS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")
_KILLED, _ENDED = -signal.SIGKILL, 0


def build_in_child(options, kill_at=None, kill_after=None):
    """Builds in a child that is killed before its n-th operation on the output folder, or after some seconds.

    Returns its exit status, or minus the number of the signal that ended it.
    """
    pid = os.fork()
    if not pid:
        status = 1
        try:
            if kill_at is not None:
                _kill_this_process(options.output_dir, kill_at)
            build_pretraining_records(options)
            status = _ENDED
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_at_operations(options, expected, prepare, every):
    """Kills a build before each of its operations on the folder (`every` second one, ...), each time from the
    beginning to which `prepare` brings the folder; returns the number of kills.
    """
    folder = pathlib.Path(options.output_dir)
    for kill_at in range(1, 1000, every):
        shutil.rmtree(folder, ignore_errors=True)
        prepare(folder)
        if (status := build_in_child(options, kill_at=kill_at)) == _ENDED:
            check(folder, expected)
            return kill_at // every
        assert status == _KILLED, status
        go_on_to_the_end(options, expected)
    raise AssertionError("a build without end")


def kill_at_random(options, expected, kills, seed):
    """Kills builds at random moments, again and again in the same folder, until one ends.

    Returns (kills that hit, builds that ended).
    """
    rng = random.Random(seed)
    folder = pathlib.Path(options.output_dir)
    shutil.rmtree(folder, ignore_errors=True)
    begin = time.monotonic()
    build_in_child(options)
    seconds = time.monotonic() - begin
    hits = ended = 0
    while hits < kills:
        shutil.rmtree(folder, ignore_errors=True)
        status = _KILLED
        while status == _KILLED and hits < kills:
            kept = finished_shards(options)
            status = build_in_child(options, kill_after=rng.uniform(0, seconds / 2))
            assert status in (_KILLED, _ENDED), status
            hits += status == _KILLED
            check_promises(folder)
            check_kept(kept)
        go_on_to_the_end(options, expected)
        ended += 1
    return hits, ended


def go_on_to_the_end(options, expected):
    folder = pathlib.Path(options.output_dir)
    check_promises(folder)
    kept = finished_shards(options)
    assert build_in_child(options) == _ENDED
    check_kept(kept)
    check(folder, expected)


def check(folder, expected):
    """A set that has been built is what an undisturbed build leaves, to the byte."""
    found = contents(folder)
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    different = [name for name in expected if found[name] != expected[name]]
    assert not different, different


def check_promises(folder):
    """There is no manifest, or all that it lists."""
    if (folder / "manifest.json").exists():
        Manifest.load(folder).check_files(checksums=True)


def finished_shards(options):
    """Returns path -> time of its last change, for shards that this build has noted as finished."""
    folder = pathlib.Path(options.output_dir)
    build = folder / "build.json"
    if not build.exists() or json.loads(build.read_text())["seed"] != options.seed:
        return {}
    paths = [folder / json.loads(note.read_text())["file"] for note in folder.glob(f"*{DONE_SUFFIX}")]
    return {path: path.stat().st_mtime_ns for path in paths}


def check_kept(finished):
    """Shards that were finished before have not been written again."""
    written = [path.name for path, when in finished.items() if path.stat().st_mtime_ns != when]
    assert not written, written


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _kill_this_process(folder, kill_at):
    """Has this process killed before its n-th operation on the folder, which may leave half a file."""
    seen = 0

    def count():
        nonlocal seen
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event, arguments):
        if event in _OPERATIONS and str(arguments[0]).startswith(folder):
            count()

    def sync(file, real=files._sync):
        count()
        real(file)

    sys.addaudithook(hook)
    files._sync = sync


def built(options) -> dict[str, bytes]:
    """Returns the files of an undisturbed build."""
    shutil.rmtree(options.output_dir, ignore_errors=True)
    assert build_in_child(options) == _ENDED
    return contents(pathlib.Path(options.output_dir))


def scenes(small: PretrainingOptions, folder: pathlib.Path):
    """Returns the builds that are killed at each operation, each with what prepares its folder."""
    other = dataclasses.replace(small, seed=1, output_dir=str(folder / "other"))
    built(other)
    begun = dataclasses.replace(other, output_dir=str(folder / "begun"))
    for kill_at in range(1, 100):
        if not finished_shards(begun):
            build_in_child(begun, kill_at=kill_at)
    assert finished_shards(begun)

    def changed(_):
        """The whole set of another text of the same length."""
        corpus = pathlib.Path(small.input[0])
        text = corpus.read_text()
        corpus.write_text(text[:-200] + text[-200:].upper())
        assert build_in_child(small) == _ENDED
        corpus.write_text(text)

    over = dataclasses.replace(small, overwrite=True)
    return {
        "new": (small, lambda folder: None),
        "again": (small, lambda folder: build_in_child(small)),
        "changed": (small, changed),
        "overwritten": (over, lambda folder: shutil.copytree(other.output_dir, folder)),
        "overwritten before its end": (over, lambda folder: shutil.copytree(begun.output_dir, folder)),
    }


def main(folder: pathlib.Path, text: pathlib.Path, tokenizer: str, kills: int, every: int):
    gc.freeze()  # children share what is loaded
    few = folder / "few.txt"
    few.write_text("\n\n".join(text.read_text().split("\n\n")[:14]))
    options = PretrainingOptions(
        input=[str(text)],
        tokenizer=tokenizer,
        output_dir=str(folder / "records"),
        seq_len=32,
        num_passes=2,
        slice_mb=0.02,
        num_workers=1,
    )
    expected = built(options)
    small = dataclasses.replace(options, input=[str(few)], num_passes=1, slice_mb=0.002)
    expected_small = built(small)
    operations = {
        name: kill_at_operations(its_options, expected_small, prepare, every)
        for name, (its_options, prepare) in scenes(small, folder).items()
    }
    hits, ended = kill_at_random(options, expected, kills, seed=0)
    print(json.dumps({"operations": operations, "kills": hits, "builds": ended}))


if __name__ == "__main__":
    folder, text, tokenizer, kills, every = sys.argv[1:]
    main(pathlib.Path(folder), pathlib.Path(text), tokenizer, int(kills), int(every))
