"""Compares a checkpoint with a model: every variable is accounted for."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from xlnet_tf.checkpoints import names

_LISTED = 8  # names in an error message

Shape = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Coverage:
    """The comparison of a checkpoint with the expected variables, each by name with its shape."""

    loaded: Mapping[str, Shape]
    missing: Mapping[str, Shape]
    other_shape: Mapping[str, tuple[Shape, Shape]]  # (shape in the checkpoint, shape expected)
    unexpected: Mapping[str, Shape]  # what nothing is known about, or that the model's own parts do not have
    unused: Mapping[str, Shape]  # of whole heads that the model does not have
    new: Mapping[str, Shape]  # what the checkpoint was allowed to lack
    stripped: Sequence[str] = ()  # names of optimizer slots and counters in the checkpoint

    @classmethod
    def compare(
        cls,
        found: Mapping[str, Shape],
        expected: Mapping[str, Shape],
        stripped: Sequence[str] = (),
        new: Sequence[str] = (),
    ) -> "Coverage":
        """Compares by names and shapes; None in an `expected` shape stands for any size.

        `new` are parts (see names.head_scope) or single variables of the model that the checkpoint may lack.
        """
        new = {name for name in expected if not {name, names.head_scope(name)}.isdisjoint(new)}
        scopes = {names.head_scope(name) for name in expected}
        both = {name: shape for name, shape in found.items() if name in expected}
        loaded = {name: shape for name, shape in both.items() if _agree(shape, expected[name])}
        lacking = {name: shape for name, shape in expected.items() if name not in found}
        surplus = {name: shape for name, shape in found.items() if name not in expected}
        unused = {n: s for n, s in surplus.items() if names.known(n) and names.head_scope(n) not in scopes}
        return cls(
            loaded=loaded,
            missing={n: s for n, s in lacking.items() if n not in new},
            other_shape={n: (s, expected[n]) for n, s in both.items() if n not in loaded},
            unexpected={n: s for n, s in surplus.items() if n not in unused},
            unused=unused,
            new={n: s for n, s in lacking.items() if n in new},
            stripped=tuple(stripped),
        )

    @property
    def complete(self) -> bool:
        """Whether the checkpoint fits: nothing is missing, unexpected, or of another shape."""
        return not (self.missing or self.other_shape or self.unexpected)

    def problems(self) -> str:
        """Returns one line with the first few problems of each kind."""
        kinds = {
            "missing": list(self.missing),
            "unexpected": list(self.unexpected),
            "of another shape": [
                f"{name} (is {_text(is_)}, expected {_text(should)})"
                for name, (is_, should) in self.other_shape.items()
            ],
        }
        return "; ".join(
            f"{len(shapes)} {kind}: {', '.join(shapes[:_LISTED])}{', ...' if len(shapes) > _LISTED else ''}"
            for kind, shapes in kinds.items()
            if shapes
        )

    def table(self) -> str:
        """Returns a readable table of the coverage: parts in rows, problems below."""
        columns = ("loaded", "missing", "unexpected", "other_shape", "unused", "new")
        by_part: dict[str, dict[str, int]] = {}
        parameters: dict[str, int] = {}
        for column in columns:
            for name in getattr(self, column):
                counts = by_part.setdefault(names.head_scope(name), dict.fromkeys(columns, 0))
                counts[column] += 1
        for name, shape in self.loaded.items():
            parameters[names.head_scope(name)] = parameters.get(names.head_scope(name), 0) + math.prod(shape)
        rows = [("part", *(column.replace("_", " ") for column in columns), "parameters loaded")]
        rows += [
            (part, *(str(count or "-") for count in counts.values()), f"{parameters.get(part, 0):,}")
            for part, counts in by_part.items()
        ]
        totals = (str(len(getattr(self, column)) or "-") for column in columns)
        rows.append(("all", *totals, f"{sum(parameters.values()):,}"))
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
            for row in rows
        ]
        for column in ("missing", "unexpected", "unused", "new"):
            lines += [f"{column}: {name} {_text(shape)}" for name, shape in getattr(self, column).items()]
        lines += [
            f"other shape: {name} is {_text(is_)}, expected {_text(should)}"
            for name, (is_, should) in self.other_shape.items()
        ]
        if self.stripped:
            lines.append(f"stripped: {len(self.stripped)} optimizer slots, counters and the like")
        return "\n".join(lines)


def _agree(shape: Shape, expected: Shape) -> bool:
    return len(shape) == len(expected) and all(want in (None, size) for size, want in zip(shape, expected))


def _text(shape: Shape) -> str:
    return "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"
