"""What a folder holds, and who may write to it: no command overwrites another command's output."""

import os
import re
from collections.abc import Iterator

from etils import epath

from xlnet_tf import files, model_folders, ownership
from xlnet_tf.errors import UserError

RECORDS, EXAMPLES = "pretraining records", "fine-tuning examples"
RUN, RUNS, ADAPTATION = "a run", "the runs of several seeds or settings", "an adaptation"
WEIGHTS, EXPORT, SAVED_MODEL = "a model's weights", "an exported model", "a SavedModel"
PART = "a part of something else"
FOREIGN, EMPTY = "other files", "nothing"
# Answers and reports have names of their own, and replace nothing there.
TAKE_RESULTS = (RUN, RUNS, ADAPTATION, WEIGHTS, EXPORT, FOREIGN)

_OF_WEIGHTS = (
    r"(model|weights)\.safetensors|(model\.safetensors|pytorch_model\.bin)(\.index\.json)?|.*ckpt.*\.index"
)
_OF_TOKENIZERS = {"spiece.model", "spiece.vocab", "tokenizer.json", "tokenizer_config.json", "SHA256SUMS"}
_OF_RUNS = {"task", "trainer"}  # of params.yaml
_SETS = {"pretraining": RECORDS, "examples": EXAMPLES}


def claim(folder: epath.PathLike, *kinds: str, flag: str) -> None:
    """Raises UserError if a writer would harm what a folder holds; call it before anything is written.

    `kinds` are what the writer resumes, adds to or replaces.
    """
    kind, shown = look(folder)
    if kind == FOREIGN and RECORDS in kinds:  # records would stand next to the splits of a data set
        kind, shown = _split_in(folder) or (kind, shown)
    if kind in (EMPTY, *kinds) or (kind == FOREIGN and not shown):
        return
    if kind == PART:
        raise UserError(f"{folder} is a part of {shown}, which may replace it: choose another {flag}")
    known = "".join(f", or one with {each}" for each in kinds if each != FOREIGN)
    raise UserError(f"{folder} holds {kind} ({shown}); expected a new folder{known}: choose another {flag}")


def look(folder: epath.PathLike) -> tuple[str, str]:
    """Returns what a folder holds, other than a tokenizer alone, and the file that shows it."""
    folder = epath.Path(folder)
    whole = folder if "://" in os.fspath(folder) else epath.Path(os.path.realpath(folder))
    for path in (whole, *whole.parents):
        if path.name == "best" and look(path.parent)[0] in (RUN, ADAPTATION):
            return PART, f"the run {path.parent}"
    found = [path.name for path in files.entries(folder)]
    names = {name for name in found if not files.is_unfinished(name)} - _OF_TOKENIZERS - {ownership.FILE}
    if not names:
        return EMPTY, ""
    return next(((kind, name) for kind, name in _signs(folder, sorted(names)) if name), (FOREIGN, ""))


def _split_in(folder: epath.PathLike) -> tuple[str, str] | None:
    """Returns as `look` the examples in a folder's subfolders; None if there are none."""
    for path in files.entries(folder):
        if path.is_dir() and look(path)[0] == EXAMPLES:
            return EXAMPLES, path.name
    return None


def _signs(folder: epath.Path, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yields kinds, each with the file name that shows it or ""; the first with a name counts."""
    there = set(names)

    def first(*wanted: str) -> str:
        return next((name for name in wanted if name in there), "")

    def matching(pattern: str) -> Iterator[str]:
        return (name for name in names if re.fullmatch(pattern, name))

    manifest = first("manifest.json")
    settings = first("params.yaml") if _fields(folder / "params.yaml").keys() >= _OF_RUNS else ""
    yield ADAPTATION, first("adaptation.json")
    yield RUN, next(matching(r"ckpt-\d+\.index"), settings and first("best"))
    yield SAVED_MODEL, first(model_folders.SAVED_MODEL)  # one version of an export, or Keras' own
    yield EXPORT, first(model_folders.OPENVINO_MODEL)  # likewise
    yield WEIGHTS, next(matching(_OF_WEIGHTS), "")
    yield RUN, settings or (manifest and first("xlnet_config.json"))  # a run that has saved nothing yet
    yield WEIGHTS, first("model.json") if "format_version" in _fields(folder / "model.json") else ""
    if kind := _SETS.get(str(_fields(folder / "manifest.json").get("kind"))):
        yield kind, manifest
    yield EXAMPLES, next(matching(r"shard-\d+\.tfrecord"), "")
    yield RECORDS, next(matching(r"build\.json|.*\.tfrecord"), "")
    versions = (name for name in matching(r"\d+") if model_folders.model_file(folder / name))
    yield EXPORT, first("models.config") or next(versions, "")
    runs = (name for name in matching(r"seed-\d+|\w[\w.]*=.+") if look(folder / name)[0] in (RUN, RUNS))
    yield RUNS, first("seeds.json", "sweep.json") or next(runs, "")
    # Files that sets, runs and weights would replace.
    yield FOREIGN, first("manifest.json", "model.json", "params.yaml")


def _fields(path: epath.Path) -> dict:
    """Returns the fields of a json or yaml file; none if it is missing or damaged."""
    try:
        return files.read_yaml(path) if path.suffix == ".yaml" else files.read_json(path)
    except (UserError, FileNotFoundError):
        return {}
