"""Texts of an evaluation are found in a corpus, however they are written there, and others are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run_scripts.adapt import leaks
from run_scripts.adapt.leaks import WINDOW, HeldOut, letters, texts_of, whole_texts_of
from tests.conftest import invent_texts
from tfrecord_builders.classification.build import build_classification
from tfrecord_builders.classification.options import ClassificationOptions

LETTERS = st.text("abcdé1 .", min_size=0, max_size=200)


@given(held_out=st.lists(LETTERS, max_size=5), before=LETTERS, after=LETTERS, index=st.integers(0, 4))
def test_a_document_is_a_leak_if_it_has_the_first_letters_of_a_text(held_out, before, after, index):
    found = HeldOut(held_out)
    content = letters(before + (held_out[index] if index < len(held_out) else "") + after)
    begins = [letters(text)[:WINDOW] for text in held_out]
    expected = any(
        begin in content if len(begin) == WINDOW else begin and begin == content for begin in begins
    )
    assert found.is_in(content) == expected


@pytest.mark.parametrize(
    ("written", "is_leak"),
    [
        ("The CAFÉ by the river, which opened in 1999, serves the best cakes of all.", True),
        ("I quote: ‘the cafe by the river\nwhich opened in 1999 serves the best cakes of all’ -- yes!", True),
        ("The café by the river, which opened in 1999, serves the best.", False),
        ("Good.", True),
        ("Good cakes.", False),
    ],
)
def test_case_accents_signs_and_spaces_do_not_count(written, is_leak):
    held_out = HeldOut(["The café by the river, which opened in 1999, serves the best cakes of all.", "good"])
    assert held_out.is_in(letters(written)) == is_leak


def test_what_the_tokenizer_cannot_write_hides_no_text():
    begin = "the first part of it is short"
    text = f"{begin} \ufffd but the second one continues for as long as it takes to be sure"
    held_out = HeldOut([text])
    assert held_out.is_in(letters(text.replace("\ufffd", "☃")))
    assert not held_out.is_in(letters(f"{begin} but nothing of the rest is there at all"))


def built(folder, tokenizer, seq_len, **splits):
    """Returns sets of examples of texts, by split."""
    for name, texts in splits.items():
        rows = "".join(f'"{text}",{number % 2}\n' for number, text in enumerate(texts))
        (folder / f"{name}.csv").write_text("text,label\n" + rows)
    (folder / "spiece.model").write_bytes(tokenizer.model_proto)
    files = {name: str(folder / f"{name}.csv") for name in splits}
    where = {"tokenizer": str(folder), "output_dir": str(folder / "examples")}
    return build_classification(ClassificationOptions(**where, seq_len=seq_len, **files))


LONG = [text for text in invent_texts(60, seed=3) if len(letters(text)) > WINDOW]


def test_texts_are_read_back_from_examples(tmp_path, small_tokenizer):
    """Also the beginning of one that was cut."""
    train, dev = LONG[:6], LONG[6:12]
    held_out = HeldOut(texts_of(built(tmp_path, small_tokenizer, 64, train=train, dev=dev)["dev"]))
    assert len(held_out) == 6
    assert all(held_out.is_in(letters(f"Well. {text}")) for text in dev)
    assert not any(held_out.is_in(letters(text)) for text in train)


def test_texts_of_which_few_letters_are_left_are_found(tmp_path, small_tokenizer):
    texts = LONG[:4] + ["a \u2603 b"]
    dev = built(tmp_path, small_tokenizer, 10, train=invent_texts(4, seed=9), dev=texts)["dev"]
    assert max(len(letters(text)) for text in texts_of(dev)) < WINDOW
    held_out = HeldOut(whole_texts_of(dev))
    assert len(held_out) == len(texts) and all(held_out.is_in(letters(text)) for text in texts)


def test_texts_of_every_task_are_found():
    lines = {
        "ranking": {"query_id": "1", "query": "q", "passages": [{"id": "2", "text": "p"}], "missing": []},
        "tagging": {"parts": [{"id": "3", "text": "t", "tags": ["O"]}]},
        "pairs": {"id": "4", "text": "a", "text_pair": "b"},
    }
    found = {name: [*leaks._texts_in(line)] for name, line in lines.items()}
    assert found == {"ranking": ["q", "p"], "tagging": ["t"], "pairs": ["a", "b"]}
