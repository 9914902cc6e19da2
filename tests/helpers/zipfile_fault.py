"""A fault of Python's zipfile that loading a .keras file by tf_keras alone meets."""

import io
import zipfile

import pytest


def is_sound() -> bool:
    """Whether a jump in one member lands in its place while another is read: not in 3.12.0-8, 3.13.0-1."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a", "123")
        file.writestr("b", "456")
    with zipfile.ZipFile(archive) as file, file.open("a") as first, file.open("b") as second:
        first.read(1)
        second.seek(1)
        return second.read(1) == b"5"


needs_sound_zipfile = pytest.mark.skipif(
    not is_sound(), reason="tf_keras cannot load .keras files with this Python's zipfile (cpython#127847)"
)
