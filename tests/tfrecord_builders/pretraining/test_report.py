"""tfrecord_builders/pretraining/report.py: no warning without a reason, each with one."""

import dataclasses
import sys

import pytest

from run_scripts import __main__ as console
from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders.pretraining import report as pretraining_report


@pytest.fixture(scope="module")
def good(build, tmp_path_factory):
    return build(tmp_path_factory.mktemp("good"), slice_mb=1.0)


def test_few_occurrences_and_explicit_choices_of_a_user_give_no_warning(good):
    few = {"unknown_rate": 0.01, "word_start_rate": 0.3, "dropped_marks": {"DEVANAGARI": 10}}
    few |= {
        "duplicate_documents": 3,
        "documents_dropped": {"empty": 3},
        "tokens_dropped": {"after_last_segment": 90},
    }
    chosen = {
        "statistics": {**good.statistics, "word_start_rate": 0.1, "duplicate_documents": 30},
        "mask": {**good.mask, "span_mode": "pieces"},
        "documents": {**good.documents, "dedup": True, "side": "dev"},
        "stream_segments": 10**6,  # few streams, of a dev set
    }
    for changes in ({}, {"statistics": {**good.statistics, **few}}, chosen):
        assert pretraining_report.warnings(dataclasses.replace(good, **changes)) == []


def test_each_warning(good):
    for fields, statistics, parts in (
        ({}, {"unknown_rate": 0.02}, ("2.0% of the tokens are <unk>", "train_tokenizer")),
        ({}, {"word_start_rate": 0.1}, ("10.0% of the tokens start a word", "--span_mode=pieces")),
        ({}, {"dropped_marks": {"DEVANAGARI": 9000, "LATIN": 10}}, ("9,000 DEVANAGARI", "--keep_accents")),
        ({}, {"nul_bytes": dict.fromkeys("abcd", 2)}, ("8 bytes", "(2 in a, 2 in b, 2 in c, ...)", "tr -d")),
        ({}, {"short_document_tokens": 30_000}, ("of the tokens are in documents shorter", "--seq_len")),
        ({}, {"sentences": 300}, ("A and B together 13", "--sentence_split")),
        ({}, {"duplicate_documents": 30}, ("30 of 300 documents (10.0%) equal an earlier one", "--dedup")),
        ({}, {"documents_dropped": {"empty": 30}}, ("30 of 300 documents (10.0%) have no", "--text_field")),
        ({}, {"tokens_dropped": {"after_last_segment": 9000}}, ("9,000 after last segment", "--slice_mb")),
        ({"stream_segments": 10**6}, {}, ("only 2 streams", "2 rows at most", "--stream_segments")),
    ):
        bad = dataclasses.replace(good, statistics={**good.statistics, **statistics}, **fields)
        (warning,) = pretraining_report.warnings(bad)
        assert [part for part in parts if part not in warning] == []


def test_a_warning_names_a_command_as_the_users_program_does(good, monkeypatch):
    bad = dataclasses.replace(good, statistics={**good.statistics, "unknown_rate": 0.02})
    assert "(python -m run_scripts.train_tokenizer)" in pretraining_report.warnings(bad)[0]
    monkeypatch.setattr(sys.modules["__main__"], "spelled", console.spelled, raising=False)
    assert "(xlnet-tf train-tokenizer)" in pretraining_report.warnings(bad)[0]


def test_warnings_of_a_bad_corpus(build, tmp_path):
    """Paragraphs of another script, most documents twice and short, cut into slices that are too small."""
    text = "".join(f"\u05e9\u05dc\u05d5\u05dd {line}\n\n" for line in make_text(40).split("\n"))
    (tmp_path / "bad.txt").write_text(2 * text)
    manifest = build(tmp_path / "out", input=[str(tmp_path / "bad.txt")], seq_len=512, slice_mb=0.015)
    found = "\n".join(pretraining_report.warnings(manifest))
    parts = ("tokens are <unk>", "shorter than a segment", "equal an earlier one", "in no record", "streams")
    assert not [part for part in parts if part not in found], found


def test_sets_of_which_less_was_counted(good):
    """Sets that were built before documents were accounted for."""
    new = ["documents_in", "documents_dropped", "duplicate_documents", "short_documents", "dropped_marks"]
    new.append("short_document_tokens")
    kept = {name: n for name, n in good.statistics.items() if name not in new}
    old = dataclasses.replace(good, statistics=kept)
    assert pretraining_report.warnings(old) == []
    summary = pretraining_report.summary(old)
    for part in ("300 of 300", "; 0% of the tokens in some shorter", "0 duplicates"):
        assert part in summary
    summary = pretraining_report.summary(good)
    assert (
        f"{good.records:,} of 32 tokens" in summary
        and f"{good.statistics['bytes'] / 1e3:,.1f} kB, " in summary
    )
