"""A model that answers or embeds texts, before anything slow of it is read."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers.options import FLOAT32

# Of texts, and whether each token is to have a vector; returns generation.embedding.TextVectors.
Embedder = Callable[[Sequence[str], bool], Any]


class _Load(Protocol):
    def __call__(self, weights: str = FLOAT32) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Source:
    """A model that answers texts, before anything slow of it is read."""

    path: str
    file: str  # changes with its weights
    ranks: Mapping[str, int]  # its inputs
    load: _Load  # from a kind of weights to an ExportableModel, which has the options, or a Served
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dtype: str = ""  # that of a run's training


def language_model_error(path: str) -> UserError:
    """Returns the error of who asks a pretrained language model for a task's answers."""
    return UserError(
        f"{path} is a pretrained language model: ask it with fill-mask, generate or score, or "
        "fine-tune it for what predict is to answer"
    )


def check_type_is_kept(path: str, weights: str) -> None:
    """Raises UserError if an exported model would be loaded in a type other than float32."""
    if weights != FLOAT32:
        raise UserError(f"{path} is exported and keeps the type that it has: leave out --dtype={weights}")
