"""Texts with ways of equal scores are split by one rule, whichever SentencePiece is installed."""

import gzip
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from tests.text.test_tokenizer import with_bytes
from xlnet_tf.errors import UserError
from xlnet_tf.text import ties
from xlnet_tf.text.graph.tokenizer import GraphTokenizer
from xlnet_tf.text.model_proto import ModelProto
from xlnet_tf.text.ties import TieSearch
from xlnet_tf.text.tokenizer import XLNetTokenizer, _load_processor

ENGLISH, CHINESE = "data/xlnet_cased/spiece.model", "data/xlnet_chinese/spiece.model"
# Packages of environments with other releases; 0.2.3 needs the protobuf that it was made with.
RELEASES = {
    "0.2.1": ["sentencepiece==0.2.1"],
    "0.2.3": ["sentencepiece==0.2.3", "protobuf>=7.36.1"],
    "newest": ["sentencepiece", "protobuf"],
}
# Prints the release, how many texts its own ids differ in, and the tokenizer's ids: of a batch and of texts.
SPLIT = """
import json, sys
import sentencepiece
from xlnet_tf.text.tokenizer import XLNetTokenizer

model, texts = json.load(sys.stdin)
tokenizer = XLNetTokenizer(model)
plain = sentencepiece.SentencePieceProcessor(model_file=model)
few = texts[:3000]
others = sum(plain.encode(text) != tokenizer._processor.encode(text) for text in few)
ids, lengths = tokenizer.encode_batch(texts)
single = [tokenizer.encode(text) for text in few]
json.dump([sentencepiece.__version__, others, ids.tolist(), lengths.tolist(), single], sys.stdout)
"""


def hostile_texts(pieces, seed=0):
    """Returns runs of one sign, repeated syllables, brackets, dashes, and pieces in any order."""
    rng = random.Random(seed)
    short = [piece for piece in pieces if len(piece) < 5]
    known = set(pieces)
    repeated = [piece for piece in short if piece * 2 in known] + rng.sample(short, 300)
    texts = [piece * count for piece in repeated for count in (3, 4, 5, 7)]
    texts += [f"the {text} end" for text in texts]
    texts += [sign * count for sign in "!?.-_=*()[]\"'–—。！？…，" for count in range(2, 12)]
    texts += ["".join(rng.choices(short, k=12)).replace("▁", " ") for _ in range(1000)]
    return texts


class ShorterFirst(sentencepiece.SentencePieceProcessor):
    """Another release: of two ways with equal scores it takes the other one."""

    def encode(self, texts, out_type=int, **options):
        if not isinstance(texts, str):
            return [self.encode(text, out_type) for text in texts]
        pieces = super().encode(texts, out_type=str)
        for index, (a, b) in enumerate(zip(pieces, pieces[1:])):
            if a != b and a + b == b + a:
                pieces[index : index + 2] = b, a
        return pieces if out_type is str else [self.piece_to_id(piece) for piece in pieces]


@pytest.fixture(scope="module")
def tied_model(small_tokenizer):
    """A vocabulary in which "b" and "bb" are pieces."""
    model = ModelProto.FromString(small_tokenizer.model_proto)
    scores = {"b": -3.1234567, "bb": -4.7654321}
    model.pieces.add(piece="bb", type=ModelProto.SentencePiece.NORMAL)
    for piece in model.pieces:
        piece.score = scores.get(piece.piece, piece.score)
    return model.SerializeToString()


@pytest.mark.parametrize("model", [ENGLISH, CHINESE])
def test_the_search_equals_the_pinned_release(shared, model):
    tokenizer = XLNetTokenizer(shared(model))
    search, processor = TieSearch(tokenizer.piece_table), tokenizer._processor
    texts = hostile_texts(tokenizer.pieces)
    assert [search.ids(processor.normalize(text)) for text in texts] == processor.encode(texts)
    last = texts[-300:]
    spelled = [[piece for piece, _ in search.split(processor.normalize(text))] for text in last]
    assert spelled == processor.encode(last, out_type=str)


def test_the_search_spells_unknown_characters_in_bytes(small_tokenizer):
    tokenizer = XLNetTokenizer(model_proto=with_bytes(small_tokenizer))
    processor, text = tokenizer._processor, "ba 文😀 ne"
    assert TieSearch(tokenizer.piece_table).ids(processor.normalize(text)) == processor.encode(text)


def test_probes_are_texts_with_ties(tied_model):
    table = ties.PieceTable.parse(tied_model)
    assert "bbb" in ties.probes(table)
    table.trainer.model_type = table.trainer.BPE
    assert not ties.probes(table)


def test_ties_of_another_release_are_not_used(tied_model, request, monkeypatch):
    request.addfinalizer(_load_processor.cache_clear)
    texts = ["bbb", "bane bbb toreee", "文b文bbb", "5,bbb", "ba"]
    expected = XLNetTokenizer(model_proto=tied_model).encode(texts)
    _load_processor.cache_clear()  # no model is loaded, before and after
    monkeypatch.setattr(sentencepiece, "SentencePieceProcessor", ShorterFirst)
    other = ShorterFirst()
    other.LoadFromSerializedProto(tied_model)
    assert [*map(other.encode, texts)] != expected
    tokenizer = XLNetTokenizer(model_proto=tied_model)
    assert tokenizer.encode(texts) == expected == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts * 50)[0].tolist() == sum(expected * 50, [])
    assert tokenizer.tokenize("bbb") == [tokenizer.id_to_piece(number) for number in expected[0]]


def test_a_graph_refuses_a_library_with_other_ties(tied_model, monkeypatch):
    tokenizer = XLNetTokenizer(model_proto=tied_model)
    swapped = {text: ids[:-2] + ids[:-3:-1] for text, ids in tokenizer.ties.items()}
    monkeypatch.setitem(vars(tokenizer), "ties", swapped)
    with pytest.raises(UserError, match="TensorFlow Text breaks ties"):
        GraphTokenizer(tokenizer)


@pytest.mark.integration
def test_a_saved_model_checks_ties_where_it_is_loaded(tied_model, tmp_path, monkeypatch):
    tokenizer = XLNetTokenizer(model_proto=tied_model)
    module = GraphTokenizer(tokenizer)
    tf.saved_model.save(module, str(tmp_path / "good"))
    tf.saved_model.load(str(tmp_path / "good"))
    text = next(iter(tokenizer.ties))
    monkeypatch.setitem(module._model._ties, text, tokenizer.ties[text][::-1] + [8])
    tf.saved_model.save(module, str(tmp_path / "bad"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="TensorFlow Text breaks ties"):
        tf.saved_model.load(str(tmp_path / "bad"))


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
def test_ids_under_other_releases(shared, tmp_path, release):
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path / "site")]
    subprocess.run([*install, *RELEASES[release]], check=True)
    with gzip.open(shared("data/pretrain/imdb_unsup_20000docs.txt.gz"), "rt") as file:
        real = [line.strip() for line, _ in zip(filter(str.strip, file), range(5000))]
    path = os.pathsep.join([str(tmp_path / "site"), *sys.path])
    for model, language in ((shared(ENGLISH), real), (shared(CHINESE), [])):
        tokenizer = XLNetTokenizer(model)
        texts = [*hostile_texts(tokenizer.pieces), *language]
        split = subprocess.run(
            [sys.executable, "-c", SPLIT],
            input=json.dumps([str(model), texts]),
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        version, others, ids, lengths, single = json.loads(split.stdout)
        assert (others > 0) == (version not in ("0.2.0", "0.2.1"))
        pinned = tokenizer.encode_batch(texts)
        np.testing.assert_array_equal(ids, pinned[0])
        np.testing.assert_array_equal(lengths, pinned[1])
        assert single == [tokenizer.encode(text) for text in texts[: len(single)]]
