"""What a set of another program's records is, whatever the program."""

import dataclasses
from collections.abc import Sequence

from tfrecord_builders.conversion.int64_records import ExternalFile
from xlnet_tf.errors import UserError


@dataclasses.dataclass(frozen=True)
class ExternalSet:
    """Files that were made with the same settings.

    Args:
        files: in the order in which they are converted.
        seq_len: tokens T of a segment.
        reuse_len: tokens R of its first part.
        lower: whether the text was lower-cased.
        num_predict: tokens that were picked in every record; None: as many as it happened, or none yet.
        alpha, beta: of each alpha tokens about beta were picked.
        split: the set's name.
    """

    files: tuple[ExternalFile, ...]
    seq_len: int
    reuse_len: int
    lower: bool
    num_predict: int | None
    alpha: int
    beta: int
    split: str


def joined(sets: Sequence[ExternalSet]) -> ExternalSet:
    """Returns the set of all files.

    Raises:
        UserError: the sets differ in more than their files.
    """
    first, *others = sets
    for other in others:
        for field in dataclasses.fields(first):
            one, another = getattr(first, field.name), getattr(other, field.name)
            if field.name != "files" and one != another:
                raise UserError(
                    f"{field.name} is {one} of {first.files[0].path} and {another} of "
                    f"{other.files[0].path}: give --input one kind of records, by a glob if need be"
                )
    return dataclasses.replace(first, files=tuple(file for one in sets for file in one.files))
