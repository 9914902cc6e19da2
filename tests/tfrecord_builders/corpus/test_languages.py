"""Records of text without spaces between words: spans of whole words, sentences, voiced kana."""

import gzip
import json

import numpy as np
import pytest

from tfrecord_builders.pretraining import report as pretraining_report
from tfrecord_builders.pretraining.build import PretrainingOptions, build_pretraining_records
from xlnet_tf.records.shards import read_shard
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.training import train_tokenizer

JAPANESE = "\n\n".join(
    [
        "吾輩は猫である。名前はまだ無い。",
        "どこで生れたかとんと見当がつかぬ。",
        "データベースのバックアップを毎日とる。",
    ]
    * 30
)


def targets(manifest):
    """bool [records, tokens] of the first shard."""
    columns = read_shard(manifest.path(manifest.shards[0]), manifest.spec)
    is_target = np.zeros(columns["input_ids"].shape, bool)
    np.put_along_axis(is_target, columns["target_positions"].astype(int), True, axis=1)
    return columns["input_ids"], is_target


def build(tmp_path, corpus, tokenizer, **options):
    return build_pretraining_records(
        PretrainingOptions(
            input=[str(corpus)],
            tokenizer=str(tokenizer),
            output_dir=str(tmp_path / "out"),
            num_workers=1,
            **options,
        )
    )


def test_chinese_with_the_real_tokenizer(shared, tmp_path):
    rows = gzip.decompress(shared("data/chnsenticorp/train.tsv.gz").read_bytes()).decode().split("\n")[1:1500]
    texts = [row.split("\t", 1)[1] for row in rows if "\t" in row]
    (tmp_path / "zh.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokenizer = shared("data/xlnet_chinese/spiece.model")
    manifest = build(tmp_path, tmp_path / "zh.jsonl", tokenizer, seq_len=128, sentence_split="zh")
    statistics = manifest.statistics
    assert statistics["sentences"] > 2 * len(texts)
    assert statistics["word_start_rate"] > 0.9 and statistics["unknown_rate"] < 0.001
    # Spans of 1 to 5 words, as often as 1 / their length: 2.2 words on average, of about one piece each.
    runs = {int(length): count for length, count in statistics["target_runs"].items()}
    assert runs[1] > runs[2] > runs[3] > runs[4] > runs[5] > 5 * runs.get(7, 0)
    assert 1.8 < statistics["targets"] / sum(runs.values()) < 2.5
    assert not [warning for warning in pretraining_report.warnings(manifest) if "start a word" in warning]


@pytest.mark.parametrize("keep_accents,vocab_size", [(False, 56), (True, 59)])
def test_japanese(tmp_path, keep_accents, vocab_size):
    lines = JAPANESE.split("\n")
    tokenizer = train_tokenizer(
        lines, vocab_size, cleaning=CleaningConfig(keep_accents=keep_accents), character_coverage=1.0
    )
    (tmp_path / "ja.model").write_bytes(tokenizer.model_proto)
    (tmp_path / "ja.txt").write_text(JAPANESE)
    manifest = build(
        tmp_path,
        tmp_path / "ja.txt",
        tmp_path / "ja.model",
        seq_len=32,
        sentence_split="ja",
        keep_accents=keep_accents,
    )
    assert manifest.statistics["sentences"] == 120 and manifest.statistics["documents"] == 90
    ids, is_target = targets(manifest)
    pieces = np.array(XLNetTokenizer(model_file=tmp_path / "ja.model").pieces)
    shown = "".join(pieces[ids.ravel()])
    warned = [warning for warning in pretraining_report.warnings(manifest) if "--keep_accents" in warning]
    if keep_accents:
        assert "である" in shown and "データベース" in shown and not warned
        assert manifest.statistics["dropped_marks"] == {}
    else:
        assert "てある" in shown and "テータヘース" in shown and len(warned) == 1
        assert manifest.statistics["dropped_marks"] == {"HIRAGANA": 30 * 5, "KATAKANA": 30 * 4}
    assert (is_target.sum(axis=1) == manifest.num_predict).all()
    assert set(manifest.statistics["target_runs"]) >= {"1", "2", "3"}
