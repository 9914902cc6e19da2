"""Every command that reads text warns, before it starts, of the letters that cleaning makes others of."""

import json
import pathlib

import pytest

from run_scripts.train_tokenizer import train
from tfrecord_builders import corpus
from tfrecord_builders.classification.build import build_classification
from tfrecord_builders.classification.options import ClassificationOptions
from tfrecord_builders.pretraining.build import build_sets
from tfrecord_builders.pretraining.options import PretrainingOptions
from tfrecord_builders.race.build import RaceOptions, build_race
from tfrecord_builders.ranking.build import RankingOptions, build_ranking
from tfrecord_builders.squad.build import SquadOptions, build_squad
from tfrecord_builders.tagging.build import TaggingOptions, build_tagging
from xlnet_tf.text.cleaning import CleaningConfig

TEXT = "\u00dcber die sch\u00f6ne Br\u00fccke"
QUESTION = {"id": "1", "question": TEXT[9:], "answers": [{"text": "die", "answer_start": 5}]}


def jsonl(folder, *rows):
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(folder / "rows.jsonl")


def classification(folder, common):
    rows = jsonl(folder, {"text": TEXT, "label": "a"}, {"text": "plain", "label": "b"})
    build_classification(ClassificationOptions(train=rows, seq_len=32, **common))


def race(folder, common):
    first, second, *options = TEXT.rsplit(" ", 2)[0], TEXT.split(" ")[2], "da", TEXT.split(" ")[3]
    row = {"context": first, "question": second, "options": options, "answer": 1}
    build_race(RaceOptions(train=[jsonl(folder, row)], seq_len=32, max_qa_len=8, **common))


def ranking(folder, common):
    rows = [{"query": "Wo?", "passage": text, "relevance": int(text == TEXT)} for text in (TEXT, "plain")]
    build_ranking(RankingOptions(train=jsonl(folder, *rows), seq_len=32, max_query_len=8, **common))


def squad(folder, common):
    data = {
        "version": "1.1",
        "data": [{"title": "", "paragraphs": [{"context": TEXT[:8], "qas": [QUESTION]}]}],
    }
    (folder / "squad.json").write_text(json.dumps(data))
    build_squad(
        SquadOptions(train=str(folder / "squad.json"), seq_len=64, max_question_len=8, stride=16, **common)
    )


def tagging(folder, common):
    row = {"text": TEXT, "entities": [{"start": 16, "end": 22, "label": "LOC"}]}
    build_tagging(TaggingOptions(train=[jsonl(folder, row)], seq_len=32, **common))


def pretraining(folder, common):
    text = jsonl(folder, {"text": f"{TEXT}\n" * 9})
    build_sets(PretrainingOptions(input=[text], seq_len=32, stream_segments=1, **common))


def tokenizer(folder, common):
    cleaning = CleaningConfig(keep_accents=common.get("keep_accents", False))
    options = corpus.CorpusOptions(input=[jsonl(folder, {"text": f"{TEXT}\n" * 9})])
    train(options, pathlib.Path(common["output_dir"]) / "spiece", 32, cleaning=cleaning)


@pytest.mark.parametrize(
    "build", [classification, race, ranking, squad, tagging, pretraining, tokenizer], ids=lambda f: f.__name__
)
def test_builders_warn_before_they_start(build, tmp_path, small_tokenizer, caplog):
    (tmp_path / "used.model").write_bytes(small_tokenizer.model_proto)
    common = {"tokenizer": str(tmp_path / "used.model"), "output_dir": str(tmp_path / "out")}
    build(tmp_path, dict(common))
    [warning] = [record.getMessage() for record in caplog.records if "accents" in record.getMessage()]
    assert "\u00dcber -> Uber, sch\u00f6ne -> schone, Br\u00fccke -> Brucke" in warning
    caplog.clear()
    build(tmp_path, common | {"output_dir": str(tmp_path / "kept"), "keep_accents": True})
    assert not [record for record in caplog.records if "accents" in record.getMessage()]
