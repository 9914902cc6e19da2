"""Sentences: the language counts, paragraph marks stay where they were."""

import numpy as np
import pytest
import sentencex
from hypothesis import example, given
from hypothesis import strategies as st

from tfrecord_builders.corpus.sentences import check_language, split_sentences
from tfrecord_builders.pretraining.build import PretrainingOptions, build_pretraining_records
from xlnet_tf.errors import UserError
from xlnet_tf.records.shards import read_shard
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.training import train_tokenizer


@pytest.mark.parametrize(
    "language,paragraph,sentences",
    [
        ("en", "Dr. Ito paid 5.4. Why? He left.", ["Dr. Ito paid 5.4.", "Why?", "He left."]),
        ("de", "Das ist z.B. so. Am 3. Mai?", ["Das ist z.B. so.", "Am 3. Mai?"]),
        ("zh", "去公园吧！好吗？「好的。」他说。", ["去公园吧！", "好吗？", "「好的。」", "他说。"]),
        ("ja", "いい天気です。公園に行こう！行く？", ["いい天気です。", "公園に行こう！", "行く？"]),
        ("hi", "यह एक वाक्य है। यह दूसरा है।", ["यह एक वाक्य है।", "यह दूसरा है।"]),
    ],
)
def test_paragraphs_become_sentences(language, paragraph, sentences):
    check_language(language)
    assert split_sentences(language, [paragraph, "", paragraph]) == [*sentences, "", *sentences]
    glued = [*sentences[:-1], sentences[-1] + "<eop>"]  # marks stay glued to the last sentence
    assert split_sentences(language, [paragraph + "<eop>", "", "<eop>"]) == [*glued, "", "<eop>"]


@pytest.mark.parametrize("language", ["zh", "ja", "en"])
def test_long_paragraphs_without_spaces_are_split_in_blocks(language, monkeypatch):
    """sentencex takes time by the square of such a text's length, so that it gets 2,000 characters or so."""
    paragraph = "天气很好。去公园吧！！他说：“好吗？走！”「好的。」第一。2、第二。谁？" * 500
    segment, lengths = sentencex.segment, []
    monkeypatch.setattr(
        sentencex, "segment", lambda code, text: lengths.append(len(text)) or segment(code, text)
    )
    assert split_sentences(language, [paragraph]) == segment(language, paragraph)
    assert len(lengths) == len(paragraph) // 2000 and max(lengths) < 2050


@given(st.sampled_from(["en", "de", "zh", "ja"]), st.text("aB1.!?。」\"' \t\x85\u00a0\u2009\u202f\u3000"))
@example("en", "He has hepatitis B\u00a0.")
@example("en", "Vitamin C\u2009.")
@example("de", "X\u202f.")
@example("zh", "A\u3000.")
def test_any_spaces_are_split_and_nothing_is_lost(language, paragraph):
    """Some spaces before a full stop make sentencex panic, which is no Exception."""
    sentences = split_sentences(language, [paragraph + "<eop>"])
    assert " ".join(sentences).split() == " ".join(sentences).split(" ")
    assert "".join("".join(sentences).split()) == "".join(paragraph.split()) + "<eop>"


def test_languages_that_would_be_split_as_english_are_refused():
    for code, near in {"xx": "", "English": "near: en", "zh-hans": "near: zh", "th": ""}.items():
        with pytest.raises(UserError, match=f"sentence_split is '{code}'.*{near}.*take en"):
            check_language(code)


@pytest.mark.parametrize(
    "keep_accents,vocab_size,shown,dropped",
    [(False, 56, "テータヘース", {"HIRAGANA": 30 * 5, "KATAKANA": 30 * 4}), (True, 59, "データベース", {})],
)
def test_japanese_records(tmp_path, keep_accents, vocab_size, shown, dropped):
    """Spans of whole words without spaces between them, sentences, and voiced kana."""
    documents = ["吾輩は猫である。名前はまだ無い。", "どこで生れたかとんと見当がつかぬ。"]
    documents.append("データベースのバックアップを毎日とる。")
    cleaning = CleaningConfig(keep_accents=keep_accents)
    tokenizer = train_tokenizer(documents * 30, vocab_size, cleaning=cleaning, character_coverage=1.0)
    (tmp_path / "ja.model").write_bytes(tokenizer.model_proto)
    (tmp_path / "ja.txt").write_text("\n\n".join(documents * 30))
    options = {"seq_len": 32, "sentence_split": "ja", "keep_accents": keep_accents, "num_workers": 1}
    files = {"input": [str(tmp_path / "ja.txt")], "tokenizer": str(tmp_path / "ja.model")}
    manifest = build_pretraining_records(PretrainingOptions(output_dir=f"{tmp_path}/out", **files, **options))
    statistics = manifest.statistics
    assert (statistics["sentences"], statistics["documents"]) == (120, 90)
    assert statistics["dropped_marks"] == dropped and set(statistics["target_runs"]) >= {"1", "2", "3"}
    ids = read_shard(manifest.path(manifest.shards[0]), manifest.spec)["input_ids"]
    assert shown in "".join(np.array(tokenizer.pieces)[ids.ravel()])
