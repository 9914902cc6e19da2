"""Which documents are trained on, held out, replayed and left out."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from run_scripts.adapt import texts
from run_scripts.adapt.leaks import HeldOut, letters
from run_scripts.adapt.texts import TextOptions
from xlnet_tf.errors import UserError

SECRET = "a text of the test set, long enough to be found wherever it stands in a document"


def sentences(count, word):
    return [f"The {word} of number {number} is described here, at some length." for number in range(count)]


def corpus(path, documents):
    path.write_text("".join(f"{document}\n\n" for document in documents))
    return (str(path),)


def written(folder, name):
    return [json.loads(line)["text"] for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_leaks_and_duplicates_are_left_out_and_counted(tmp_path):
    domain = sentences(40, "film")
    documents = [*domain, domain[3].upper(), f"Somebody quotes: {SECRET}!", SECRET]
    general = [*sentences(60, "law"), SECRET]
    options = TextOptions(
        input=corpus(tmp_path / "domain.txt", documents),
        general_input=corpus(tmp_path / "general.txt", general),
        replay=0.25,
    )
    counts, sets = texts.choose(options, HeldOut([SECRET]), seed=0)
    texts.write(options, sets, tmp_path)
    assert [counts["input"][name] for name in ("documents", "leaks", "duplicates")] == [43, 2, 1]
    assert [counts["general_input"][name] for name in ("documents", "leaks", "duplicates")] == [61, 1, 0]
    train, dev, replay, held = (
        written(tmp_path, name) for name in (texts.TRAIN, texts.DEV, texts.REPLAY, texts.GENERAL)
    )
    assert sorted(map(letters, train + dev)) == sorted(map(letters, domain))
    assert 1 <= len(dev) <= 6 and not {*replay} & {*held} and {*replay, *held} < {*general}
    assert not [text for text in train + dev + replay + held if SECRET in text]
    share = len("".join(replay)) / len("".join(replay + train))
    assert share == pytest.approx(0.25, abs=0.02)


def test_what_is_measured_on_is_trained_on_in_neither_corpus(tmp_path):
    films, laws = sentences(40, "film"), sentences(60, "law")
    domain, general = corpus(tmp_path / "domain.txt", films), corpus(tmp_path / "all.txt", [*laws, *films])
    measured = corpus(tmp_path / "dev.txt", [*sentences(5, "law"), films[7]])
    for options in (
        TextOptions(input=domain, general_input=general, replay=0.5),
        TextOptions(input=domain, general_input=general, general_dev_input=measured, replay=0.5),
    ):
        texts.write(options, texts.choose(options, HeldOut([]), seed=0)[1], tmp_path)
        dev, general_dev = (set(written(tmp_path, name)) for name in (texts.DEV, texts.GENERAL))
        trained_on = {*written(tmp_path, texts.TRAIN), *written(tmp_path, texts.REPLAY)}
        assert dev and general_dev and not trained_on & (dev | general_dev)
    with pytest.raises(UserError, match="every document to train on is general text to measure"):
        texts.choose(TextOptions(input=domain, general_dev_input=domain), HeldOut([]), seed=0)


@settings(max_examples=20)
@given(order=st.permutations(range(20)), seed=st.integers(0, 3))
def test_the_choice_depends_on_contents_not_on_their_order(tmp_path_factory, order, seed):
    folder, documents = tmp_path_factory.mktemp("texts"), sentences(20, "film")
    found = []
    for numbers in (range(20), order):
        options = TextOptions(
            input=corpus(folder / "domain.txt", [documents[number] for number in numbers]),
            general_input=corpus(folder / "general.txt", [sentences(20, "law")[n] for n in numbers]),
            replay=0.3,
        )
        texts.write(options, texts.choose(options, HeldOut([]), seed)[1], folder)
        names = (texts.TRAIN, texts.DEV, texts.REPLAY, texts.GENERAL)
        found.append([sorted(written(folder, name)) for name in names])
    assert found[0] == found[1]


def test_columns_of_a_table_are_documents(tmp_path):
    rows = [f'Title {n},"{text}",{n % 2}' for n, text in enumerate(sentences(9, "film"))]
    (tmp_path / "table.csv").write_text("\n".join(["title,body,label", *rows]))
    options = TextOptions(input=(str(tmp_path / "table.csv"),), text_column=("title", "body"))
    found = [text for _, text in options.read("input")]
    assert found == [f"Title {n}\n{text}" for n, text in enumerate(sentences(9, "film"))]


def test_what_cannot_be_used_is_refused(tmp_path):
    films, laws = sentences(20, "film"), corpus(tmp_path / "g.txt", sentences(4, "law"))
    domain = "\n\n".join(films)
    for message, documents, more in (
        ("--input: the corpus is empty", "", {}),
        ("--input: no document of .*domain.txt has text", " \n\n \n", {}),
        ("1 different documents are too few", "Only this one.", {}),
        ("every document of .* holds a text of the task's dev or test", domain, {"held_out": films}),
        ("there is no general text: give --general_input", domain, {"replay": 0.1}),
        (r"takes 0\.0 MB of general text, but --general_input has", domain,
         {"replay": 0.5, "general_input": laws}),
    ):  # fmt: skip
        (tmp_path / "domain.txt").write_text(documents)
        held_out = HeldOut(more.pop("held_out", ()))
        with pytest.raises(UserError, match=message):
            options = TextOptions(input=(str(tmp_path / "domain.txt"),), **more)
            options.check()
            texts.choose(options, held_out, 0)
        assert not list(tmp_path.glob("*.jsonl"))


def test_held_out_documents_are_about_as_many_as_asked_for(tmp_path):
    options = TextOptions(input=corpus(tmp_path / "domain.txt", sentences(200, "film")), dev_mb=0.0005)
    counts = texts.choose(options, HeldOut([]), 0)[0]["input"]
    assert 500 <= counts[texts.DEV]["bytes"] <= 600
    assert counts[texts.TRAIN]["documents"] + counts[texts.DEV]["documents"] == 200
