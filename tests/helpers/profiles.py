"""How many examples tests try.

Hypothesis tries few and always the same; in the long profile many, each time others.

    pytest --hypothesis-profile=long tests

What the long profile finds it prints with the decorator that repeats it (`@reproduce_failure`).
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "default", derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.register_profile("long", settings.get_profile("default"), derandomize=False, print_blob=True)
# For tests/mutants.py, where nobody looks at the examples that fail.
settings.register_profile(
    "unshrunk", settings.get_profile("default"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("default")


def examples(few: int, many: int) -> settings:
    """Returns the settings of a test: how many examples it tries in `make test`, and in the long profile."""
    return settings(max_examples=few_or_many(few, many))


def few_or_many(few: int, many: int) -> int:
    """Returns the first number in `make test`, the second in the long profile."""
    return many if settings.get_current_profile_name() == "long" else few


def mostly_integration(many: Sequence[Any], *quick: Any) -> list[Any]:
    """Returns parameters of which `make test` has the quick ones, `make test-integration` the others."""
    return [pytest.param(one, marks=[] if one in quick else pytest.mark.integration) for one in many]


def pairs(many: Sequence[Any], few: Sequence[Any]) -> list[Any]:
    """Returns all pairs as parameters; `make test` has each of `many` with one of `few`, in turn."""
    return [
        pytest.param(one, other, marks=[] if number % len(few) == place else pytest.mark.integration)
        for number, one in enumerate(many)
        for place, other in enumerate(few)
    ]
