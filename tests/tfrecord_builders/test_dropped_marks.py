"""Every command that reads text warns, before it starts, of the letters that cleaning makes others of."""

import json

import pytest

from run_scripts.train_tokenizer import train
from tests.helpers.records import builders
from tfrecord_builders import corpus
from tfrecord_builders.pretraining.build import build_sets
from tfrecord_builders.pretraining.options import PretrainingOptions
from xlnet_tf.text.cleaning import CleaningConfig

TEXT = "\u00dcber die sch\u00f6ne Br\u00fccke"
ASKED = {"id": "1", "question": TEXT[9:], "answers": [{"text": "die", "answer_start": 5}]}
ROWS = {
    "classification": [{"text": TEXT, "label": "a"}, {"text": "plain", "label": "b"}],
    "race": [{"context": TEXT[:8], "question": TEXT[9:15], "options": ["da", TEXT[16:]], "answer": 1}],
    "ranking": [
        {"query": "Wo?", "passage": TEXT, "relevance": 1},
        {"query": "Wo?", "passage": "plain", "relevance": 0},
    ],
    "squad": [],
    "tagging": [{"text": TEXT, "entities": [{"start": 16, "end": 22, "label": "LOC"}]}],
}


def build(name, folder, tokenizer, keep_accents):
    if name in ROWS:
        rows = ROWS[name] or builders.squad_file(folder / "squad.json", ASKED, context=TEXT[:8])
        builders.build(name, folder, tokenizer, train=rows, keep_accents=keep_accents, overwrite=True)
        return
    (folder / "rows.jsonl").write_text(json.dumps({"text": f"{TEXT}\n" * 9}))
    text = [str(folder / "rows.jsonl")]
    if name == "tokenizer":
        cleaning, prefix = CleaningConfig(keep_accents=keep_accents), folder / f"kept {keep_accents}/spiece"
        train(corpus.CorpusOptions(input=text), prefix, 32, cleaning=cleaning)
    else:
        files = {"input": text, "tokenizer": str(tokenizer), "output_dir": str(folder / "records")}
        options = {"seq_len": 32, "stream_segments": 1, "num_workers": 1, "overwrite": True}
        build_sets(PretrainingOptions(**files, **options, keep_accents=keep_accents))


@pytest.mark.parametrize("name", [*ROWS, "pretraining", "tokenizer"])
def test_builders_warn_before_they_start(name, tmp_path, small_tokenizer, caplog):
    (tmp_path / "used.model").write_bytes(small_tokenizer.model_proto)
    for keep_accents in (False, True):
        caplog.clear()
        build(name, tmp_path, tmp_path / "used.model", keep_accents)
        warnings = [record.getMessage() for record in caplog.records if "accents" in record.getMessage()]
        assert len(warnings) == (not keep_accents)
        for warning in warnings:
            assert "\u00dcber -> Uber, sch\u00f6ne -> schone, Br\u00fccke -> Brucke" in warning
