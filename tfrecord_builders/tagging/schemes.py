"""Tags of words: the schemes in which entities are written down, all turned into BIO.

B-X begins an entity of type X, I-X continues it, O is outside of entities. The other schemes:

    IOB1   B-X only where an entity follows another of its type at once; else entities begin with I-X
    IOBES  E-X ends an entity of several words, S-X is an entity of one word
    BILOU  the same, with L-X and U-X

Other tags, such as parts of speech, are the scheme TAGS and stay as they are.
"""

import re
from collections.abc import Iterable, Sequence

from xlnet_tf.text.words import OUTSIDE, mark_entities

_PREFIXES = {"bio": "BI", "iob1": "BI", "iobes": "BIES", "bilou": "BILU"}
_SINGLE, _END = "SU", "EL"
SCHEMES = tuple(_PREFIXES)
TAGS = "tags"


def found_in(tags: Iterable[str]) -> str:
    """Returns the scheme that tags are in, as far as they show it: bio, iobes, bilou or TAGS."""
    known = set(tags)
    if not mark_entities([*known]) and not all(re.fullmatch("O|[ESLU]-.+", tag) for tag in known):
        return TAGS
    begins = {tag[:2] for tag in known}
    return "iobes" if begins & {"E-", "S-"} else "bilou" if begins & {"L-", "U-"} else "bio"


def to_bio(tags: Sequence[str], scheme: str) -> tuple[list[str], list[int]]:
    """Converts tags to BIO; returns them and the indices of those that the scheme does not allow there.

    Such a tag begins an entity if it cannot continue one, and an entity without its end tag ends before the
    next tag that is not its own. A tag that is not one of the scheme's is a ValueError.
    """
    bio, broken = [], []
    open_type = None  # of the entity that the tag before this one left open
    must_end = scheme in ("iobes", "bilou")
    for index, tag in enumerate(tags):
        prefix, kind = _parse(tag, scheme, index)
        continues = prefix in ("I", *_END) and kind == open_type
        if prefix == OUTSIDE:
            allowed = not (must_end and open_type)
        elif scheme == "iob1":
            allowed = prefix == "I" or kind == open_type
        elif continues:
            allowed = True
        else:
            allowed = prefix in ("B", *_SINGLE) and not (must_end and open_type)
        if not allowed:
            broken.append(index)
        bio.append(OUTSIDE if prefix == OUTSIDE else f"{'I' if continues else 'B'}-{kind}")
        open_type = None if prefix in (OUTSIDE, *_SINGLE, *_END) else kind
    if must_end and open_type:
        broken.append(len(tags) - 1)
    return bio, sorted(set(broken))


def label_set(types: Iterable[str]) -> list[str]:
    """Returns O, then B-X and I-X of each type X, the types in alphabetical order."""
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in sorted(types) for prefix in "BI")]


def _parse(tag: str, scheme: str, index: int) -> tuple[str, str]:
    prefixes = _PREFIXES[scheme]
    prefix, dash, kind = tag.partition("-")
    if tag == OUTSIDE or (dash and kind and prefix in tuple(prefixes)):
        return prefix, kind
    expected = ", ".join([OUTSIDE, *(f"{letter}-TYPE" for letter in prefixes)])
    names = "; for numbers write the names of the tags" if tag.removeprefix("-").isdecimal() else ""
    raise ValueError(
        index,
        f"the tag is {tag!r}, expected {expected} (--scheme={scheme}; parts of speech and other tags that "
        f"mark no entities are --scheme={TAGS}){names}",
    )
