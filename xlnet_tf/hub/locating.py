"""Models by name: `hf://OWNER/NAME[@REVISION]` becomes a local folder.

    located = hub.locate("hf://xlnet/xlnet-base-cased")
    located.folder, located.source      # a folder of the cache, hf://xlnet/xlnet-base-cased@<commit>

The Hugging Face hub's own library fetches the files: huggingface_hub, the extra `hub`. Its cache, tokens
(HF_TOKEN), offline mode (HF_HUB_OFFLINE=1) and address (HF_ENDPOINT) apply. Only files that this project
reads are fetched. A model that cannot be fetched is an error; there is no fallback.
"""

import contextlib
import difflib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from etils import epath

from xlnet_tf.errors import UserError, install_command
from xlnet_tf.hub import cache, keras_file, releases
from xlnet_tf.hub.cache import asked_to_wait, first_line, is_of_library, patiently

SCHEME = "hf://"
EXTRA = "hub"
# In order of preference: only one format is read. An index lists the files of split weights.
HUGGING_FACE_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
WEIGHTS = ("weights.safetensors", *HUGGING_FACE_WEIGHTS, "xlnet_model.ckpt.index")
# Files that are read in addition to the weights.
BESIDE = (
    "model.json",
    "config.json",
    "xlnet_config.json",
    "params.yaml",
    "manifest.json",
    "metrics.json",
    "tokenizer_config.json",
    "SHA256SUMS",
)
TOKENIZERS = ("spiece.model", "tokenizer.json")  # the first one of these is read
PRETRAINED_FLAG_HELP = "Folder of a pretrained model: a run's, the original's or Hugging Face's."
EXPECTED = (
    f"expected the folder of a run, a folder with {WEIGHTS[0]}, the original's xlnet_model.ckpt, or Hugging "
    "Face's model.safetensors or pytorch_model.bin"
)

_PART = r"[A-Za-z0-9][\w.-]*"
_NAME = re.compile(rf"(?:{SCHEME})?({_PART}/{_PART})(?:@([\w./-]+))?", re.ASCII)
_PAGE = re.compile(
    rf"(?:hf:/+|https?://(?:www\.)?(?:huggingface\.co|hf\.co)/)({_PART}/{_PART})", re.ASCII | re.IGNORECASE
)
_SHARD = re.compile(r"(model|pytorch_model)-\d+-of-\d+\.(safetensors|bin)")
_COMMIT = re.compile("[0-9a-f]{40}")
_SECONDS = 60  # timeout
_ORIGINAL_SHARD = re.compile(r"xlnet_model\.ckpt\.data-\d+-of-\d+")


class Located(NamedTuple):
    """A model's folder and its source, which `locate` takes, too."""

    folder: str  # for a path, the path
    source: str  # with the commit or sha256 of a fetched model; for a path, the path


def locate(path: str | os.PathLike, *, tokenizer_only: bool = False) -> Located:
    """Finds a model by its path or name; a name's files are fetched unless the cache has them.

    Args:
        path: an existing path, also of a .keras file, has precedence; hf://OWNER/NAME[@REVISION], or plain
            OWNER/NAME unless that begins with a local folder or with runs/; or the folder name of one of the
            original's models (see releases.released).

    Raises:
        UserError: the hub has no such model, cannot be reached, or sent damaged files.
        FileNotFoundError: nothing is at a path that looks like a name, and the hub has no such model either.
    """
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"the model is {path!r}; expected the path of a folder or a name, hf://OWNER/NAME.")
    path = os.fspath(path)
    match = _NAME.fullmatch(path)
    release = releases.archive_of(path)
    if release and (path != release.name or not epath.Path(path).exists()):
        return Located(*releases.fetch(release))
    if path.endswith(keras_file.ENDING) and os.path.isfile(path):
        return Located(keras_file.unpacked(path), path)
    if not match or (not path.startswith(SCHEME) and _is_local(path)):
        if path.lower().startswith(("hf:", "http:", "https:")):
            page = _PAGE.match(path)
            expected = f"{SCHEME}{page[1]}" if page else f"{SCHEME}OWNER/NAME[@REVISION]"
            raise UserError(f"{path} is not the name of a model: expected {expected}")
        return Located(path, path)
    try:
        import huggingface_hub as library
        import huggingface_hub.constants  # which is not loaded with it
    except ImportError:
        install = install_command(EXTRA)
        if not path.startswith(SCHEME):
            raise FileNotFoundError(
                f"{_nothing_at(path)}what fetches models of the Hugging Face hub is not installed: {install}"
            ) from None
        raise UserError(
            f"{path} is a model of the Hugging Face hub; what fetches it is not installed: {install}"
        ) from None
    name, revision = match.groups()
    with _errors(path, name, revision):
        folder = patiently(lambda: _fetch(library, name, revision, tokenizer_only))
    return Located(folder, f"{SCHEME}{name}@{os.path.basename(folder)}")


def require(path: str | None, what: str = "") -> None:
    """Checks that a local model exists before TensorFlow is loaded, and fetches a named one's files.

    `what` begins the message about a path. Raises as `locate` does, and FileNotFoundError.
    """
    if not path:
        return
    is_name = _NAME.fullmatch(path) and (path.startswith(SCHEME) or not _is_local(path))
    if is_name or releases.archive_of(path):
        locate(path)
    elif ":/" not in path and not any(map(os.path.exists, (path, f"{path.rstrip('/')}.index"))):
        raise FileNotFoundError(f"{what}{not_there(path)}")


def not_there(path: str) -> FileNotFoundError:
    """Returns the error about a path where there is no file, folder or checkpoint prefix."""
    return FileNotFoundError(f"there is no checkpoint at {path}{did_you_mean(path)}: {EXPECTED}.")


def commit_of_data_set(name: str, revision: str | None = None) -> str | None:
    """Asks the hub for the commit of a data set; offline, returns the revision unchanged."""
    import huggingface_hub as library
    import huggingface_hub.constants  # which is not loaded with it

    if library.constants.HF_HUB_OFFLINE:
        return revision
    try:
        return patiently(lambda: _info(library.HfApi().dataset_info, name, revision)).sha
    except Exception as error:
        if not is_of_library(error) and not isinstance(error, OSError):
            raise
        raise _explained(error, f"{SCHEME}datasets/{name}", name, revision, "data set") from error


def did_you_mean(path: str) -> str:
    """Returns a hint, in brackets, with similar paths and released models; "" if there are none."""
    released = {release.name.rpartition("/")[2]: release.name for release in releases.RELEASES}
    name, short = os.path.basename(path), _letters(path)
    begun = [each for each in released if len(short) > 5 and _letters(each).startswith(short)]
    near = _similar_paths(path.rstrip("/"))
    near += [released[each] for each in begun or difflib.get_close_matches(name, released, 2, 0.75)]
    hints = [f"similar: {', '.join(near)}"] if near else []
    if (match := _NAME.fullmatch(path)) and not path.startswith(SCHEME):
        hints.append(f"a model of the Hugging Face hub is written {SCHEME}{match[0]}")
    return f" ({'; '.join(hints)})" if hints else ""


def unread_tokenizer(names: Sequence[str]) -> str:
    """Returns a part of a message about tokenizer files that are not read; "" if there are none."""
    found = [name for name in names if name.endswith(".model")]
    return f", and {', '.join(found)} {'is' if len(found) == 1 else 'are'} not read" if found else ""


def _letters(path: str) -> str:
    """Returns the letters and digits of a name, so that xlnet_cased_L12 begins xlnet_cased_L-12_H-768."""
    return re.sub(r"[\W_]", "", os.path.basename(path)).lower()


def _similar_paths(path: str) -> list[str]:
    folder, name = os.path.split(path)
    found = []
    for parent in [folder] if not folder or os.path.exists(folder) else _similar_paths(folder):
        with contextlib.suppress(OSError):  # a file, or an unreadable folder
            near = difflib.get_close_matches(name, os.listdir(parent or "."))
            found += [os.path.join(parent, each) for each in near]
    return found


def _is_local(path: str) -> bool:
    """Returns whether what could be a name of the hub is meant as a local path."""
    first = path.partition("/")[0]
    return first == "runs" or os.path.isdir(first)


def _fetch(library: Any, name: str, revision: str | None, tokenizer_only: bool) -> str:
    """Fetches the files that are needed; returns the cache's folder, which is named after the commit."""
    if library.constants.HF_HUB_OFFLINE:
        folder = library.snapshot_download(name, revision=revision, local_files_only=True, allow_patterns=[])
        names = os.listdir(folder)
        if not tokenizer_only and not set(WEIGHTS) & set(names):
            raise UserError(
                f"the cache lacks the weights of {SCHEME}{name}. Go online (unset HF_HUB_OFFLINE) and start "
                "again"
            )
        wanted = _wanted(names, name, tokenizer_only)
        folder = library.snapshot_download(
            name, revision=revision, local_files_only=True, allow_patterns=wanted
        )
        if damaged := [file for file in wanted if not cache.is_intact(os.path.join(folder, file))]:
            raise UserError(
                f"{', '.join(damaged)} of {SCHEME}{name} changed in the cache after the download. Go online "
                "(unset HF_HUB_OFFLINE) and start again to fetch what changed"
            )
        return folder
    info = _info(library.HfApi().model_info, name, revision, files_metadata=True)
    wanted = _wanted([file.rfilename for file in info.siblings], name, tokenizer_only)
    return cache.fetch(library, name, revision, info, wanted)


def _info(ask: Callable[..., Any], name: str, revision: str | None, **options: Any) -> Any:
    """Returns the hub's description of a model or data set: at least its commit and its files."""
    try:
        info = ask(name, revision=revision, timeout=_SECONDS, **options)
        for file in info.siblings if options else ():
            cache.digest_and_size(file)
        if not _COMMIT.fullmatch(info.sha):
            raise ValueError("it names no commit")
        return info
    except cache.MISREADINGS as error:
        if is_of_library(error):
            raise
        raise UserError(f"{name} cannot be fetched: {cache.not_a_hub(error)}") from error


def _wanted(names: Sequence[str], name: str, tokenizer_only: bool) -> list[str]:
    tokenizer = [file for file in TOKENIZERS if file in names][:1]
    if tokenizer_only:
        if not tokenizer:
            raise UserError(
                f"{SCHEME}{name} has no {TOKENIZERS[0]}{unread_tokenizer(names)}: give as the tokenizer the "
                "model that it was trained from, such as hf://xlnet/xlnet-base-cased"
            )
        return [*tokenizer, *(file for file in BESIDE if file in names)]
    weights = next((file for file in WEIGHTS if file in names), None)
    if weights is None:
        found = ", ".join(sorted(names)[:10]) or "no files"
        raise UserError(f"{SCHEME}{name} has no weights: expected one of {', '.join(WEIGHTS)}, found {found}")
    stem = weights.partition(".")[0] if weights.endswith(".index.json") else None
    shards = [file for file in names if (match := _SHARD.fullmatch(file)) and match[1] == stem]
    if weights == WEIGHTS[-1]:
        shards = [*filter(_ORIGINAL_SHARD.fullmatch, names)]
    return [weights, *shards, *tokenizer, *(file for file in BESIDE if file in names)]


@contextlib.contextmanager
def _errors(path: str, name: str, revision: str | None) -> Iterator[None]:
    """Turns the library's errors into one line that says what to do."""
    try:
        yield
    except (UserError, FileNotFoundError) as error:
        if not is_of_library(error):
            raise
        from huggingface_hub import constants

        if not constants.HF_HUB_OFFLINE:
            raise _explained(error, path, name, revision) from error
        raise UserError(
            f"{_nothing_at(path)}the cache lacks files of {SCHEME}{name}{f'@{revision}' * bool(revision)}, "
            "and HF_HUB_OFFLINE is set. Go online (unset HF_HUB_OFFLINE) and start again"
        ) from error
    except Exception as error:
        if not is_of_library(error) and not isinstance(error, OSError):
            raise
        raise _explained(error, path, name, revision) from error


def _explained(
    error: Exception, path: str, name: str, revision: str | None, what: str = "model"
) -> Exception:
    from huggingface_hub import errors

    shown = path if what != "model" else f"{SCHEME}{name}"
    if isinstance(error, errors.GatedRepoError):
        return UserError(
            f"{shown} is gated: accept its terms on its page, then set HF_TOKEN to a token of yours"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        kind = UserError if path.startswith(SCHEME) else FileNotFoundError
        return kind(
            f"{_nothing_at(path)}the Hugging Face hub has no {what} {name}, or it is private: check the "
            "name, or set HF_TOKEN to a token that may read it"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return UserError(f"{shown} has no revision {revision}: give a branch, a tag or a commit of it")
    if (wait := asked_to_wait(error)) is not None:
        advice = f"The hub is busy: start again {f'after {wait} seconds' if wait else 'later'}"
    elif is_of_library(error) or isinstance(error, ConnectionError | TimeoutError):
        advice = (
            "Check the network and start again, which resumes a download that has begun; with "
            "HF_HUB_OFFLINE=1, what the cache has is read"
        )
    else:
        advice = "Make room for the cache, or set HF_HOME to a folder that can be written, and start again"
    return UserError(f"{_nothing_at(path)}{shown} cannot be fetched ({first_line(error)}). {advice}")


def _nothing_at(path: str) -> str:
    return "" if path.startswith(SCHEME) else f"there is nothing at {path}{did_you_mean(path)}, and "
