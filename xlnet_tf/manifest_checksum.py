"""The checksum that a manifest has of itself, so that no change to it goes unnoticed.

It is of the fields, not of the file: another order of them or other spaces change nothing. A manifest without
one is taken as it is: those of earlier builds have none, and who edits one removes it.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from xlnet_tf.errors import UserError

FIELD = "manifest_sha256"


def with_checksum(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a manifest's fields with their checksum, to write them.

    It comes first: bytes that are lost between two fields cannot take it along and leave valid json.
    """
    return {FIELD: _sha256(values), **values}


def pop_checksum(values: dict[str, Any]) -> bool:
    """Removes the checksum from fields that were read; returns whether they are as they were written."""
    found = values.pop(FIELD, None)
    return found is None or found == _sha256(values)


def broken(path: Any) -> UserError:
    """Returns the error for a manifest that is not as it was written."""
    return UserError(
        f"{path} was changed after it was written (its fields do not fit its {FIELD}): build again, or, if "
        f"you have changed it on purpose, remove {FIELD}"
    )


def _sha256(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
