"""Damage to the bytes of a file, and to the values of a json document."""

import collections
import copy
import json
import pathlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import yaml

from xlnet_tf import manifest_checksum
from xlnet_tf.errors import UserError

# What no field expects, or no reader should believe.
HOSTILE = (
    None, True, False, -1, 0, 1, 3, 10**9, 10**30, -(10**30), 0.5, 1e308, float("nan"), float("inf"),
    "", "x", "7", "\u0000", "../../escaped", "/tmp/escaped", "a/b", "..", "\ud800", [], [[]], {}, {"x": 1},
    [None],
)  # fmt: skip


def counts(few: int, many: int):
    """Parametrizes a test by the number of mutations: few in `make test`, many in `make test-all`."""
    return pytest.mark.parametrize("count", [few, pytest.param(many, marks=pytest.mark.long)])


def generators(count: int) -> Iterator[random.Random]:
    """Yields this many generators of random numbers, always the same."""
    return (random.Random(seed) for seed in range(count))


def try_damaged(
    count: int,
    files: Sequence[pathlib.Path],
    change: Callable[[random.Random, bytes], bytes],
    use: Callable[[pathlib.Path], object],
) -> collections.Counter:
    """Damages one of the files, uses it and mends it, many times; an error must say something.

    Returns:
        How often it could be "used", and how often it gave which error.
    """
    seen = collections.Counter()
    for rng in generators(count):
        path = rng.choice(files)
        data = path.read_bytes()
        path.write_bytes(change(rng, data))
        try:
            use(path)
        except (UserError, OSError) as error:
            assert str(error) and len(str(error)) < 5000
            seen[type(error).__name__] += 1
        else:
            seen["used"] += 1
        finally:
            path.write_bytes(data)
    print(dict(seen))
    return seen


def flip(rng: random.Random, data: bytes) -> bytes:
    """Flips one bit, or a few."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwrite(rng: random.Random, data: bytes) -> bytes:
    """Puts zeros, ones, or other bytes over a stretch."""
    begin = rng.randrange(len(data))
    end = min(len(data), begin + rng.choice((1, 4, 64, 512)))
    fill = rng.choice((b"\0", b"\xff", rng.randbytes(1)))
    return data[:begin] + fill * (end - begin) + data[end:]


def remove(rng: random.Random, data: bytes) -> bytes:
    """Takes a stretch out."""
    begin = rng.randrange(len(data))
    return data[:begin] + data[begin + rng.randrange(1, 40) :]


def insert(rng: random.Random, data: bytes) -> bytes:
    """Repeats a stretch, or puts garbage in."""
    begin = rng.randrange(len(data))
    stretch = rng.choice((data[begin : begin + rng.randrange(1, 40)], rng.randbytes(rng.randrange(1, 9))))
    return data[:begin] + stretch + data[begin:]


_WAYS: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "flip": flip,
    "overwrite": overwrite,
    "truncate": lambda rng, data: data[: rng.randrange(len(data))],
    "extend": lambda rng, data: data + rng.choice((rng.randbytes(rng.randrange(1, 50)), bytes(16), data)),
    "remove": remove,
    "insert": insert,
    "empty": lambda rng, data: b"",
    "other": lambda rng, data: rng.choice(
        (rng.randbytes(len(data)), bytes(len(data)), b"{}", b"\x80\x02.", data[::-1])
    ),
}
OF_BYTES = (*["flip"] * 4, *["overwrite"] * 2, "truncate", "extend", "remove", "insert", "empty", "other")


def damaged(rng: random.Random, data: bytes, how: str = "") -> bytes:
    """Returns a file's bytes with damage of some kind, one of OF_BYTES."""
    return _WAYS[how or rng.choice(OF_BYTES)](rng, data)


def mutated(rng: random.Random, value: Any) -> Any:
    """Returns a copy of a json value in which one or two values are others, gone, new or of another type."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2))):
        places = list(_places(value))
        if not places:
            return rng.choice(HOSTILE)
        holder, key = rng.choice(places)
        _change(rng, holder, key)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields all (object or list, key or index) of a json value."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _change(rng: random.Random, holder: Any, key: Any):
    old = holder[key]
    how = rng.randrange(8)
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, dict):
        holder[rng.choice(("x", "", "folder", "__class__", f"{key} "))] = old
    elif how == 1:
        holder.append(old)
    elif how == 2 and type(old) in (int, float):
        holder[key] = rng.choice((old + 1, old - 1, -old, old * 2, old * 10**9, str(old), float(old)))
    elif how == 2 and isinstance(old, str):
        holder[key] = rng.choice((old + "x", old[:-1], old.upper(), [old], "../" + old, "/" + old))
    elif how == 3:
        holder[key] = {"x": old}
    elif how == 4:
        holder[key] = [old]
    else:
        holder[key] = rng.choice(HOSTILE)


def set_field(*path_and_value) -> Callable[[Any], None]:
    """Returns what sets one value of a json document: the keys and indices that lead to it, then it."""
    *path, name, value = path_and_value

    def change(values):
        for key in path:
            values = values[key]
        values[name] = value

    return change


def of_json(rng: random.Random, data: bytes) -> bytes:
    """Changes a json document; now and then it is damaged, too, or nested too deep."""
    text = json.dumps(mutated(rng, json.loads(data)), indent=1).encode()
    if rng.randrange(20) == 0:
        return b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    return damaged(rng, text) if rng.randrange(4) == 0 else text


def of_yaml(rng: random.Random, data: bytes) -> bytes:
    try:
        text = yaml.safe_dump(mutated(rng, yaml.safe_load(data))).encode()
    except (yaml.YAMLError, UnicodeEncodeError):
        text = b"a: &a [*a, *b]"
    return damaged(rng, text) if rng.randrange(4) == 0 else text


def under_its_checksum(rng: random.Random, data: bytes) -> bytes:
    """Changes a manifest, but not its checksum."""
    values = json.loads(data)
    checksum = {manifest_checksum.FIELD: values.pop(manifest_checksum.FIELD)}
    changed = mutated(rng, values)
    return json.dumps(checksum | changed if isinstance(changed, dict) else changed).encode()


def with_checksum(rng: random.Random, data: bytes) -> bytes:
    """Changes a manifest, and makes its checksum fit."""
    values = json.loads(data)
    manifest_checksum.pop_checksum(values)
    changed = mutated(rng, values)
    return json.dumps(
        manifest_checksum.with_checksum(changed) if isinstance(changed, dict) else changed
    ).encode()
