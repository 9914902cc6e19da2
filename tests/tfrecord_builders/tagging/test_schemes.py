"""Tag schemes: whatever the scheme, the entities are the same; what a scheme does not allow is found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2, Entities

from tfrecord_builders.tagging.schemes import SCHEMES, to_bio

TYPES = st.sampled_from(["PER", "LOC", "B-MISC"])  # a type may look like a tag
ENTITIES = st.lists(st.tuples(st.integers(1, 4), st.none() | TYPES), max_size=8)


def write(entities, scheme):
    """Writes runs of words, (length, type or None), as tags."""
    tags = []
    for length, kind in entities:
        if kind is None:
            tags += ["O"] * length
            continue
        after_same = bool(tags) and tags[-1] != "O" and tags[-1].partition("-")[2] == kind
        begin = "B" if scheme != "iob1" or after_same else "I"
        end, single = {"iobes": "ES", "bilou": "LU"}.get(scheme, ("I", begin))
        letters = [single] if length == 1 else [begin, *["I"] * (length - 2), end]
        tags += [f"{letter}-{kind}" for letter in letters]
    return tags


@given(ENTITIES)
def test_all_schemes_say_the_same(entities):
    bio = write(entities, "bio")
    for scheme in SCHEMES:
        assert to_bio(write(entities, scheme), scheme) == (bio, [])


@given(st.sampled_from(["bio", "iob1", "iobes"]), st.data())
def test_any_tags_have_the_entities_that_conlleval_reads(scheme, data):
    letters = "BIES" if scheme == "iobes" else "BI"
    tags = data.draw(
        st.lists(st.just("O") | st.builds("{}-{}".format, st.sampled_from(letters), TYPES), max_size=12)
    )
    bio, broken = to_bio(tags, scheme)
    assert get_entities(bio) == get_entities(tags)
    strict = Entities([bio], scheme=IOB2).entities[0]
    assert [entity.to_tuple()[1:] for entity in strict] == [(k, i, j + 1) for k, i, j in get_entities(bio)]
    assert to_bio(bio, "bio") == (bio, [])
    if scheme == "bio":
        assert broken == [i for i, (before, after) in enumerate(zip(tags, bio)) if before != after]


@pytest.mark.parametrize(
    ("scheme", "tags", "bio", "broken"),
    [
        ("bio", "O I-A I-A I-B", "O B-A I-A B-B", [1, 3]),
        ("iob1", "I-A B-A I-B B-B B-A", "B-A B-A B-B B-B B-A", [4]),
        ("iobes", "B-A I-A O E-A S-B I-B", "B-A I-A O B-A B-B B-B", [2, 3, 5]),
        ("iobes", "B-A S-A B-B E-A", "B-A B-A B-B B-A", [1, 3]),
        ("bilou", "B-A L-A U-A L-A I-B", "B-A I-A B-A B-A B-B", [3, 4]),
    ],
)
def test_broken_tags_are_found_and_repaired(scheme, tags, bio, broken):
    assert to_bio(tags.split(), scheme) == (bio.split(), broken)


def test_tags_outside_the_scheme_are_named():
    wrong = {"bio": ["PER", "E-PER", "B-", "-PER", "BI-PER"], "iobes": ["L-A", "ES-A"], "bilou": ["o"]}
    for scheme, tag in ((scheme, tag) for scheme, tags in wrong.items() for tag in tags):
        with pytest.raises(ValueError) as error:
            to_bio(["O", tag], scheme)
        index, reason = error.value.args
        assert index == 1 and repr(tag) in reason and f"--scheme={scheme}" in reason
