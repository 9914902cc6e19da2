"""The checksum that a manifest holds of itself, so that no change to it goes unnoticed.

It covers the fields, not the file: their order and spaces do not matter. A manifest without one is accepted:
earlier builds wrote none, and whoever edits a manifest removes it.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from xlnet_tf.errors import UserError

FIELD = "manifest_sha256"


def with_checksum(values: Mapping[str, Any]) -> dict[str, Any]:
    """Adds a checksum to a manifest's fields, as the first, where bytes lost between two fields spare it."""
    return {FIELD: _sha256(values), **values}


def pop_checksum(values: dict[str, Any]) -> bool:
    """Removes the checksum from fields that were read; returns whether they are unchanged."""
    found = values.pop(FIELD, None)
    return found is None or found == _sha256(values)


def broken(path: Any) -> UserError:
    """Returns the error for a manifest that was changed."""
    return UserError(
        f"{path} was changed after it was written (its fields do not fit its {FIELD}): build again, or, if "
        f"you have changed it on purpose, remove {FIELD}"
    )


def _sha256(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
