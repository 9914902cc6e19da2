"""The tokenizer has the names of Hugging Face's, and their results."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2

from tests.conftest import invent_texts
from tests.helpers import hugging_face
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.special_tokens import SYMBOLS
from xlnet_tf.text.tokenizer import XLNetTokenizer

# What both tokenizers are asked in the same words.
COMMON = """
def common(tokenizer, rows):
    kinds = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
    return {
        "special": {f"{k}_{n}": getattr(tokenizer, f"{k}_{n}") for k in kinds for n in ("token", "token_id")},
        "len": [len(tokenizer), tokenizer.vocab_size],
        "vocab": tokenizer.get_vocab(),
        "with_special": rows,
        "tokens": [tokenizer.convert_ids_to_tokens(row) for row in rows],
        "content": [tokenizer.convert_ids_to_tokens(row, skip_special_tokens=True) for row in rows],
        "ids": tokenizer.convert_tokens_to_ids(["<mask>", "<cls>", "nothing", "a"]),
        "spelled": tokenizer.batch_decode(rows, skip_special_tokens=False),
        "decoded": tokenizer.batch_decode(rows, skip_special_tokens=True),
    }
"""
THEIRS = f"""
import transformers
{COMMON}
def answer(folder, texts, pairs, most):
    tokenizer = transformers.XLNetTokenizer.from_pretrained(folder)
    cut = {{"truncation": True, "max_length": most}}
    packed = tokenizer(texts, pairs, padding="max_length", **cut)
    return common(tokenizer, [tokenizer.encode(text) for text in texts]) | {{
        "version": int(transformers.__version__.partition(".")[0]),
        "tokenize": [tokenizer.tokenize(text) for text in texts],
        "encode": [tokenizer.encode(text, add_special_tokens=False) for text in texts],
        "pairs": [tokenizer.encode(*pair) for pair in zip(texts, pairs)],
        "cut": [tokenizer.encode(text, padding="max_length", **cut) for text in texts],
        "cut_pairs": [tokenizer.encode(*pair, **cut) for pair in zip(texts, pairs)],
        "strings": [tokenizer.convert_tokens_to_string(tokenizer.tokenize(text)) for text in texts],
        "packed": [packed["input_ids"], packed["attention_mask"]],
        "longest": tokenizer(texts, padding=True)["input_ids"],
    }}
"""


def ours(tokenizer, texts, pairs, most):
    exec(COMMON, names := {})
    special = {"add_special_tokens": True}
    cut = {"truncation": True, "max_length": most, **special}
    packed = tokenizer(texts, pairs, max_length=most)
    return names["common"](tokenizer, tokenizer.encode(texts, **special)) | {
        "tokenize": tokenizer.tokenize(texts),
        "encode": tokenizer.encode(texts),
        "pairs": tokenizer.encode(texts, pairs, **special),
        "cut": tokenizer.encode(texts, padding="max_length", **cut),
        "cut_pairs": tokenizer.encode(texts, pairs, **cut),
        "strings": [tokenizer.convert_tokens_to_string(tokens) for tokens in tokenizer.tokenize(texts)],
        "packed": [packed["input_word_ids"].tolist(), packed["input_mask"].tolist()],
        "longest": tokenizer(texts, padding=True, truncation=False, seq_len=5)["input_word_ids"].tolist(),
    }


@pytest.mark.integration
@pytest.mark.parametrize("cleaning", [CleaningConfig(), CleaningConfig(lower=True, keep_accents=True)])
def test_results_are_those_of_transformers(tmp_path, any_tokenizer, cleaning):
    tokenizer = XLNetTokenizer(model_proto=any_tokenizer.model_proto, cleaning=cleaning)
    tokenizer.save_pretrained(tmp_path)
    texts = [
        *invent_texts(30, seed=3),
        "A fine film, in 1999, said ``she''.",
        "Über   naïve 猫 café\n",
        '"Well," he said (at 10.5 - no, 11 - o\'clock), "it\'s a two-year-old."',
        "1,5",
        ",",
    ]
    inputs = {"texts": texts, "pairs": texts[::-1], "most": 9}
    expected = hugging_face.ask(THEIRS, folder=str(tmp_path), **inputs)
    if expected.pop("version") >= 5:  # see docs/migrate/hugging-face.md
        plain = [text for text in texts if text.isascii() and not re.search(r"\d,", text)]
        inputs |= {"texts": plain, "pairs": plain[::-1]}
        expected = hugging_face.ask(THEIRS, folder=str(tmp_path), **inputs)
        for name in ("version", "content", "spelled", "decoded"):
            del expected[name]
    found = ours(XLNetTokenizer.from_pretrained(tmp_path), **inputs)
    for name in expected:
        assert found[name] == expected[name], name


def test_encode_of_one_text_of_many_and_of_pairs(small_tokenizer):
    one, two = invent_texts(2, seed=5)
    ids, second = small_tokenizer.encode(one), small_tokenizer.encode(two)
    assert small_tokenizer.encode([one, two]) == [ids, second]
    assert small_tokenizer.tokenize(one) == small_tokenizer.convert_ids_to_tokens(ids)
    assert small_tokenizer.convert_tokens_to_ids(small_tokenizer.tokenize(one)) == ids
    assert small_tokenizer.encode(one, add_special_tokens=True) == [*ids, 4, 3]
    assert small_tokenizer.encode(one, two, add_special_tokens=True) == [*ids, 4, *second, 4, 3]
    assert small_tokenizer.encode(one, truncation=True, max_length=2) == ids[:2]
    padded = small_tokenizer.encode(["ba", one], padding=True)[0]
    assert padded == [5] * (len(ids) - 1) + small_tokenizer.encode("ba")
    with pytest.raises(UserError, match="need max_length"):
        small_tokenizer.encode(one, truncation=True)
    with pytest.raises(UserError, match="give add_special_tokens=True"):
        small_tokenizer.encode(one, two)


def test_one_text_is_a_batch_of_one_and_empty_ones_are_padded_to_the_longest(small_tokenizer):
    for name, rows in small_tokenizer("ba ne", "tor", max_length=9).items():
        np.testing.assert_array_equal(rows, small_tokenizer(["ba ne"], ["tor"], seq_len=9)[name])
    for padding in ("longest", False):
        assert small_tokenizer([""], padding=padding)["input_word_ids"].tolist() == [[5, 4, 3]]
    assert small_tokenizer("", "", padding=True)["input_word_ids"].tolist() == [[5, 4, 4, 3]]
    assert small_tokenizer([], padding=True)["input_word_ids"].shape[0] == 0


def test_without_truncation_nothing_is_cut(small_tokenizer):
    long = " ".join(["ba ne tor"] * 9)
    ids = small_tokenizer.encode(long)
    rows = small_tokenizer(["ba", long], seq_len=8, truncation=False)["input_word_ids"]
    assert rows.shape == (2, len(ids) + 2)
    assert rows[1, :-2].tolist() == ids
    with pytest.raises(UserError, match="the texts have 3 to 8 tokens, and padding is off"):
        small_tokenizer(["ba", long], seq_len=8, padding=False)
    assert small_tokenizer(["ba", "ne"], padding=False)["input_word_ids"].shape == (2, 3)


def test_decode_takes_rows_and_tensors_and_spells_special_tokens_out_if_it_is_asked_to(small_tokenizer):
    rows, ids = small_tokenizer(["ba ne"], seq_len=6)["input_word_ids"], small_tokenizer.encode("ba ne")
    for given, text in ((ids, "ba ne"), ([ids], ["ba ne"]), (rows[0], "ba ne"), (rows, ["ba ne"])):
        assert small_tokenizer.decode(tf.constant(given)) == small_tokenizer.decode(given) == text
    assert small_tokenizer.decode(rows[0], skip_special_tokens=False) == "<pad><pad>ba ne<sep><cls>"
    assert small_tokenizer.batch_decode(tf.constant(rows), skip_special_tokens=True) == ["ba ne"]
    assert small_tokenizer.decode(tf.ragged.constant([ids, ids[:1]])) == ["ba ne", "ba"]
    assert small_tokenizer.all_special_tokens == list(SYMBOLS)
    pieces = small_tokenizer.convert_ids_to_tokens(ids)
    assert small_tokenizer.convert_ids_to_tokens(tf.constant(ids)) == pieces
    assert small_tokenizer.convert_ids_to_tokens(tf.constant(ids[0])) == pieces[0]


def test_wrong_options_and_ids_are_named(small_tokenizer):
    for call, message in (
        (lambda t: t(["ba"], return_tensors="tf"), "unknown option return_tensors: leave it out"),
        (lambda t: t.from_pretrained("folder", return_tensors="tf"), "unknown option return_tensors"),
        (lambda t: t(["ba"], max_len=4), "unknown option max_len; expected some of max_length"),
        (lambda t: t(["ba"], padding="right"), "padding is 'right'; expected one of True, False, 'do_not"),
        (lambda t: t(["ba"], add_special_tokens=True), "unknown option add_special_tokens; expected"),
        (lambda t: t.encode("ba", truncation=True, max_length=-1), "max_length is -1; expected a whole"),
        (lambda t: t.encode("ba", padding="max_length", max_length="9"), "max_length is '9'; expected"),
        (lambda t: t.convert_ids_to_tokens([4, len(t)]), "is not the id of a piece; expected integers"),
        (lambda t: t.encode(["ba", "a"], ["ba"], add_special_tokens=True), "2 texts and 1 second texts; exp"),
        (lambda t: t.decode([1.5]), "1.5 is not the id of a piece"),
    ):
        with pytest.raises(UserError, match=message):
            call(small_tokenizer)


def test_a_saved_tokenizer_tells_transformers_its_pieces_and_no_other_special_tokens(tmp_path, any_tokenizer):
    """User-defined pieces of the released models, such as "." and "-", are ordinary pieces there."""
    any_tokenizer.save_pretrained(tmp_path)
    found = json.loads((tmp_path / "tokenizer.json").read_text())
    pieces, scores = zip(*found["model"]["vocab"])
    assert [*pieces] == any_tokenizer.pieces
    assert [*scores] == [any_tokenizer.score(number) for number in range(len(any_tokenizer))]
    assert [token["content"] for token in found["added_tokens"]] == [*SYMBOLS]


def test_a_saved_tokenizer_leaves_no_other_tokenizer_behind(tmp_path, small_tokenizer):
    """Hugging Face would read tokenizer.json, not the new pieces."""
    model = sentencepiece_model_pb2.ModelProto.FromString(small_tokenizer.model_proto)
    model.trainer_spec.model_type = model.trainer_spec.BPE
    small_tokenizer.save_pretrained(tmp_path)
    checksums.write(tmp_path, [path.name for path in tmp_path.iterdir()])
    with (tmp_path / "SHA256SUMS").open("a") as file:
        file.write(f"{'0' * 64}  still to be fetched\n")
    XLNetTokenizer(model_proto=model.SerializeToString()).save_pretrained(tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    listed = (tmp_path / "SHA256SUMS").read_text()
    assert "tokenizer.json" not in listed and "still to be fetched" in listed


def test_a_saved_tokenizer_is_the_same_and_tells_transformers_its_cleaning(tmp_path, small_tokenizer):
    for number, cleaning in enumerate([CleaningConfig(), CleaningConfig(True, True, False, False)]):
        tokenizer = XLNetTokenizer(model_proto=small_tokenizer.model_proto, cleaning=cleaning)
        tokenizer.save_pretrained(tmp_path / str(number))
        found = XLNetTokenizer.from_pretrained(tmp_path / str(number))
        assert (found.fingerprint, found.cleaning) == (tokenizer.fingerprint, cleaning)
    kinds = [
        {step["type"] for step in json.loads(path.read_text())["normalizer"]["normalizers"]}
        for path in sorted(tmp_path.glob("*/tokenizer.json"))
    ]
    assert kinds[0] >= {"Replace", "NFKD", "StripAccents"} and "Lowercase" not in kinds[0]
    assert "Lowercase" in kinds[1] and kinds[1].isdisjoint({"Replace", "NFKD", "StripAccents"})


def test_a_tokenizer_saved_into_a_model_keeps_its_checksums(tmp_path, small_tokenizer):
    (tmp_path / "spiece.model").write_bytes(b"another")
    (tmp_path / "weights").write_bytes(b"weights")
    checksums.write(tmp_path, ["spiece.model", "weights"])
    (tmp_path / "weights").write_bytes(b"damaged")
    small_tokenizer.save_pretrained(tmp_path)
    assert XLNetTokenizer.from_pretrained(tmp_path).fingerprint == small_tokenizer.fingerprint
    with pytest.raises(UserError, match="SHA256SUMS"):
        checksums.check(tmp_path / "weights")
    (tmp_path / "model.json").write_text(json.dumps({"cleaning": {"lower": True}}))
    with pytest.raises(UserError, match="has a model with CleaningConfig.lower=True"):
        small_tokenizer.save_pretrained(tmp_path)
