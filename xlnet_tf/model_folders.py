"""Folders of exported models: FOLDER/VERSION, a number, each with the files of one runtime."""

import re

from etils import epath

SAVED_MODEL, OPENVINO_MODEL = "saved_model.pb", "openvino_model.xml"  # the file that a runtime loads
MODEL_FILES = (SAVED_MODEL, OPENVINO_MODEL)


def versions(folder: str) -> list[int]:
    """Returns the versions in a folder, ascending; only numbers that TensorFlow Serving accepts."""
    path = epath.Path(folder)
    names = [child.name for child in path.iterdir()] if path.is_dir() else []
    numbers = [int(name) for name in names if re.fullmatch(r"[0-9]+", name)]
    return sorted(number for number in numbers if number < 1 << 63)


def model_file(version: epath.PathLike) -> str | None:
    """Returns the name of the file that a version's runtime loads; None if the folder is not a version."""
    return next((name for name in MODEL_FILES if (epath.Path(version) / name).exists()), None)


def newest_version(folder: str) -> str | None:
    """Returns the folder of the newest version, or the folder itself if it is one; None if there is none."""
    return exported_version(folder) or openvino_version(folder)


def exported_version(folder: str) -> str | None:
    """Returns the folder of the newest version, or the folder itself if it is one, of a SavedModel.

    None: the folder has no version, or the newest is for another runtime.
    """
    return _newest(folder, SAVED_MODEL)


def openvino_version(folder: str) -> str | None:
    """Returns the folder of the newest version, or the folder itself if it is one, of an OpenVINO model.

    None: the folder has no version, or the newest is for another runtime.
    """
    return _newest(folder, OPENVINO_MODEL)


def _newest(folder: str, file: str) -> str | None:
    numbers = [folder, *(f"{folder}/{number}" for number in versions(folder))]
    for path in numbers[::-1]:
        if found := model_file(path):
            return path if found == file else None
    return None
