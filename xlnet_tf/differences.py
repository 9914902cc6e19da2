"""Compares the settings of two sets, runs or jobs."""

from collections.abc import Iterator, Mapping
from typing import Any


def nested_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yields (name, first's value, second's value) for each difference, at any depth."""
    for name in dict.fromkeys([*first, *second]):
        a, b = first.get(name, "absent"), second.get(name, "absent")
        if isinstance(a, dict) and isinstance(b, dict):
            yield from ((f"{name}.{inner}", *values) for inner, *values in nested_differences(a, b))
        elif a != b:
            yield name, a, b


def settings_difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Returns one line 'name: found, expected' for each field in which two settings differ."""
    return sorted(f"{name}: {a} there, {b} now" for name, a, b in nested_differences(found, expected))
