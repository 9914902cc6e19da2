"""Deduplication and the held-out split against a plain computation over whole documents."""

import gzip
import hashlib

import numpy as np
import pytest

from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders import corpus
from tfrecord_builders.common import streams
from tfrecord_builders.pretraining import dedup as document_selection
from xlnet_tf.errors import UserError


def write(folder, documents, name="a.txt"):
    text = ("\n\n".join(documents) + "\n").encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return corpus.find_sources(corpus.CorpusOptions(input=[str(folder / name)]))


def choose(sources, slice_bytes, dedup, dev_fraction):
    groups = document_selection.group_slices(corpus.plan_shards(sources, slice_bytes))
    found = [one for group in groups for one in document_selection.fingerprint_group(group)]
    found = [one | {"fingerprints": np.array(one["fingerprints"], np.uint64)} for one in found]
    return document_selection.Choice(found, dedup, dev_fraction)


def select(sources, slice_bytes, dedup, dev_fraction):
    """Returns, of the training set and of the held-out set, the slices and their lines."""
    choice = choose(sources, slice_bytes, dedup, dev_fraction)
    sets = ([], [])
    for is_dev, one in document_selection.select(
        corpus.plan_shards(sources, slice_bytes), choice, dev_fraction
    ):
        assert one.index == len(sets[is_dev])
        sets[is_dev].append((one, corpus.read_lines(one)))
    return choice, *sets


def documents_of(read):
    """The documents of slices; those that continue in the next slice are joined."""
    lines = [line for _, part in read for line in part.lines]
    return [d for d in "\n".join(lines).strip("\n").split("\n\n") if d]


def is_held_out(document, fraction):
    digest = hashlib.blake2b(document.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") < fraction * 2**64


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("slice_bytes", [900, 4000, 10**6])
@pytest.mark.parametrize("dedup", [False, True])
def test_every_document_lands_on_the_expected_side(tmp_path, slice_bytes, dedup, name):
    rng = np.random.default_rng(5)
    some = make_text(120, seed=3).strip().split("\n\n")
    long = [f"Long {i}.\n" + make_text(40, seed=i).replace("\n\n", "\n").strip() for i in range(8)]
    documents = [(some + long)[i] for i in rng.integers(0, len(some) + len(long), 300)]
    sources = write(tmp_path, documents, name)
    fraction = 0.2
    choice, train, dev = select(sources, slice_bytes, dedup, fraction)
    kept = list(dict.fromkeys(documents)) if dedup else documents
    assert documents_of(train) == [d for d in kept if not is_held_out(d, fraction)]
    assert documents_of(dev) == [d for d in kept if is_held_out(d, fraction)]
    assert {is_held_out(d, fraction) for d in long} == {False, True}
    duplicates = len(documents) - len(set(documents))
    assert duplicates > 100 and sum(choice.duplicates.values()) == duplicates
    for read in (train, dev):
        for one, lines in read:
            left = lines.documents - one.selection.duplicates - one.selection.other_set
            assert len(lines.documents_text()) == left + lines.takes_rest
            assert lines.num_bytes == sum(len(line) + 1 for line in lines.lines)
        assert (sum(one.selection.duplicates for one, _ in read) > 0) == dedup
        assert sum(lines.documents for _, lines in read) == len(documents)
    assert sum(one.source_bytes for one, _ in train + dev) == sources[0].num_bytes


def test_held_out_slices_are_as_large_as_the_others(tmp_path):
    documents = make_text(3000, seed=8).strip().split("\n\n")
    _, train, dev = select(write(tmp_path, documents), 10_000, False, 0.1)
    assert len(train) > 30 and len(dev) == -(-len(train) // 10)
    for _, lines in dev[:-1]:
        assert 5_000 < lines.num_bytes < 20_000
    # Which side a document is on does not depend on the rest of the corpus.
    _, _, of_half = select(write(tmp_path, documents[1500:], "half.txt"), 7_000, False, 0.1)
    assert documents_of(of_half) == [d for d in documents_of(dev) if d in set(documents[1500:])]


def test_a_held_out_slice_is_read_once_and_keeps_no_more_than_its_documents(tmp_path, monkeypatch):
    documents = make_text(2000).strip().split("\n\n")
    _, _, dev = select(write(tmp_path, documents, "a.txt.gz"), 5_000, False, 0.05)
    one = max((one for one, _ in dev), key=lambda one: len(one.parts))
    assert len(one.parts) > 10 and all(part.text is None for part in one.parts)
    sizes, opened, part, stream = [], [], corpus.text.TextPart, streams.Stream
    read, opening = part.read, stream.__init__
    monkeypatch.setattr(part, "read", lambda self, cache: sizes.append(self.num_bytes) or read(self, cache))
    monkeypatch.setattr(stream, "__init__", lambda self, path: opened.append(path) or opening(self, path))
    assert corpus.read_lines(one).num_bytes < 0.2 * sum(sizes) and max(sizes) < 0.2 * sum(sizes)
    assert len(opened) == 1


def test_a_document_without_an_end_is_one(tmp_path):
    """A file without blank lines, of many slices: compared in one go, by references to the file."""
    sources = write(tmp_path, ["\n".join(f"Line {i}." for i in range(2000))])
    slices = list(corpus.plan_shards(sources, 1000))
    (group,) = document_selection.group_slices(slices)
    found = document_selection.fingerprint_group(group)
    assert len({value for one in found for value in one["fingerprints"]}) == 1 and len(slices) > 5
    assert [one["continues"] for one in found] == [False] + [True] * (len(slices) - 1)
    choice, train, _ = select(sources, 1000, True, 0.0)
    assert choice.duplicates == {False: 0, True: 0} and documents_of(train)[0].count("\n") == 1999


def test_a_corpus_that_changes_is_noticed(tmp_path):
    documents = make_text(60).strip().split("\n\n")
    choice = choose(write(tmp_path, documents), 1000, True, 0.1)
    others = [*documents[:3], "New."] + documents[4:9] + documents[10:]
    for changed in (documents[:30], documents * 2, others):
        slices = corpus.plan_shards(write(tmp_path, changed), 1000)
        with pytest.raises(UserError, match="changed since its documents were compared"):
            [corpus.read_lines(one) for _, one in document_selection.select(slices, choice, 0.1)]


@pytest.mark.parametrize("block", [1, 2, 100])
def test_counting_duplicates(block, monkeypatch):
    monkeypatch.setattr(document_selection, "_BLOCK", block)
    values = np.array([5, 2**64 - 1, 5, 7, 5, 2**64 - 1], np.uint64)
    assert document_selection.count_duplicates([values[:2], values[2:]]) == 3
    assert document_selection.count_duplicates([values[:0]]) == document_selection.count_duplicates([]) == 0
    assert document_selection.equal_to_earlier(values).tolist() == [False, False, True, False, True, True]
