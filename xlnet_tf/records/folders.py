"""What is in folders, by exact names: patterns would take * and [ in a folder's own name for their signs."""

from etils import epath


def entries(folder: epath.PathLike) -> list[epath.Path]:
    """Returns the files and folders in a folder, sorted, but nothing hidden; none if there is no folder."""
    folder = epath.Path(folder)
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if not path.name.startswith("."))


def files_in(folder: epath.PathLike, suffix: str, prefix: str = "") -> list[epath.Path]:
    """Returns the files in a folder whose names begin and end so, sorted, but nothing hidden.

    Args:
        folder: local or remote; one that is not there has no files.
        suffix: small letters; the files' may be large.
        prefix: as it is.
    """
    return [
        path
        for path in entries(folder)
        if path.name.startswith(prefix) and path.name.lower().endswith(suffix)
    ]
