"""Training a tokenizer: fixed special ids, nothing lost, clear errors."""

import json
import queue

import pytest
import sentencepiece

from run_scripts import train_tokenizer as script
from tests.conftest import invent_texts
from tests.helpers.full_disk import files_of_at_most
from tfrecord_builders.corpus import CorpusOptions
from xlnet_tf.errors import UserError
from xlnet_tf.text import special_tokens, training
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer


def test_special_and_user_defined_symbols_come_first(small_tokenizer):
    symbols = list(special_tokens.SYMBOLS) + training.USER_DEFINED_SYMBOLS[1:]
    assert small_tokenizer.pieces[: len(symbols)] == symbols and small_tokenizer.vocab_size == 90
    assert small_tokenizer.encode_pieces('"a".<eop>')[-4:] == ["a", '"', ".", "<eop>"]
    assert training.train_tokenizer(invent_texts(600), 90).fingerprint == small_tokenizer.fingerprint


def test_texts_are_cleaned_before_training():
    texts = [text.upper().replace("A", "À") for text in invent_texts(300)]
    tokenizer = training.train_tokenizer(texts, 80, cleaning=CleaningConfig(lower=True))
    assert "À" not in "".join(tokenizer.pieces) and "BA" not in "".join(tokenizer.pieces)
    assert special_tokens.UNK_ID not in tokenizer.encode(texts[0])


@pytest.mark.parametrize("joint", [" ", ""])
def test_long_lines_are_cut_not_dropped(joint):
    long_text = joint.join(["k漢al"] * 3000)  # 4000 bytes end within a character
    sentences = list(training._sentences([long_text, "", "  ", "end"], CleaningConfig()))
    assert "".join(sentences) == long_text + "end"
    assert max(len(sentence.encode()) for sentence in sentences) <= 4000
    assert all(sentence.startswith("k漢al") for sentence in sentences[:-1]) or not joint


def test_sentences_with_sentencepieces_own_mark_are_not_dropped():
    texts = [f"{text} \u2585\u2587" for text in invent_texts(300)]
    tokenizer = training.train_tokenizer(texts, 80)
    assert "\u2587" in tokenizer.pieces and "\u2585" not in tokenizer.pieces


def test_impossible_trainings_are_explained():
    for texts, vocab_size, message in (
        (["", " \t", "\u2585"], 100, "no text"),
        (invent_texts(50), 5000, "at most [0-9]+, or train on more text"),
        (invent_texts(50), 12, "set the vocabulary size to more than [0-9]+"),
    ):
        with pytest.raises(UserError, match=message):
            training.train_tokenizer(texts, vocab_size)


def test_samples_that_sentencepiece_refuses():
    """It draws none of 1 to 100 sentences; 0 keeps all of them. An error while reading is not lost."""
    texts = invent_texts(300)
    with pytest.raises(UserError, match="max_sentences is 100, expected more than 100"):
        training.train_tokenizer(texts, 80, max_sentences=100)
    assert training.train_tokenizer(texts, 80, max_sentences=training.LEAST_SENTENCES).vocab_size == 80
    everything = training.train_tokenizer(texts, 80, max_sentences=0)
    assert everything.pieces == training.train_tokenizer(texts, 80).pieces

    def unreadable():
        yield from texts
        raise OSError("line 301 cannot be read")

    with pytest.raises(OSError, match="line 301"):
        training.train_tokenizer(unreadable(), 80)


def test_a_trainer_that_dies_is_reported(tmp_path, monkeypatch):
    (tmp_path / "process.py").write_text("import sys; print('no memory', file=sys.stderr); sys.exit(7)")
    monkeypatch.setattr(training.sentencepiece_process, "__file__", str(tmp_path / "process.py"))
    texts = ["more than a pipe holds" * 100] * 10_000
    with pytest.raises(UserError, match="ended with status 7.*'no memory'.*fewer sentences"):
        training.train_tokenizer(texts, 80)


def test_the_last_phase_has_a_total(capsys):
    log = queue.SimpleQueue()
    # 1000 pieces, then 750 and 562, then 550: 1.1 times the size of the vocabulary.
    sizes = ("0 size=1100", "1 size=1000", "0 size=750", "1 size=750", "0 size=562")
    for line in ("Making suffix array...", "Using 9 sentences for EM training", *sizes, None):
        log.put(line if line is None or "size" not in line else f"EM sub_iter={line} obj=9")
    assert training._follow(log, 500, True) == "EM sub_iter=0 size=562 obj=9"
    candidates, selection = capsys.readouterr().err.splitlines()
    assert candidates.startswith("finding candidate pieces (2 of 3): 00:0")
    assert selection.startswith("selecting pieces (3 of 3):  62% 5/8 [")


def test_the_script_writes_a_tokenizer_once(tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("\n".join(invent_texts(600)))
    arguments = CorpusOptions(input=[str(tmp_path / "*.txt")]), tmp_path / "out" / "spiece"
    trained = script.train(*arguments, 70)
    tokenizer = XLNetTokenizer(tmp_path / "out" / "spiece.model")
    assert trained.fingerprint == tokenizer.fingerprint
    shown = capsys.readouterr()
    assert tokenizer.fingerprint in shown.out
    assert "reading: 100%" in shown.err and "selecting pieces (3 of 3): 100%" in shown.err
    lines = (tmp_path / "out" / "spiece.vocab").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == tokenizer.pieces
    names = ["spiece.json", "spiece.model", "spiece.vocab"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    how = json.loads((tmp_path / "out" / "spiece.json").read_text())
    recorded = how["sentencepiece"], how["num_threads"], how["vocab_size"], how["sha256"]
    assert recorded == (sentencepiece.__version__, 16, 70, tokenizer.fingerprint)
    assert tokenizer.piece_table.trainer.num_threads == 16
    with pytest.raises(UserError, match="spiece.model exists"):
        script.train(*arguments, 75)
    (tmp_path / "own.json").write_text("{}")
    with pytest.raises(UserError, match="own.json exists"):
        script.train(arguments[0], tmp_path / "own", 75)
    script.train(*arguments, 75, overwrite=True)
    assert XLNetTokenizer(tmp_path / "out" / "spiece.model").vocab_size == 75


@pytest.mark.parametrize("comma", [False, True])
def test_a_tokenizer_without_a_comma_is_warned_of(tmp_path, caplog, comma):
    (tmp_path / "a.txt").write_text("\n".join(invent_texts(300)).replace(",", "," * comma))
    script.train(CorpusOptions(input=[str(tmp_path / "a.txt")]), str(tmp_path / "out/spiece"), 80)
    assert ("spiece.model has no piece ','" in caplog.text) != comma


def test_the_script_looks_at_its_output_before_training(tmp_path, monkeypatch):
    corpus = CorpusOptions(input=[str(tmp_path / "corpus")])
    (tmp_path / "file").write_text("text")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "latin.txt").write_bytes(b"caf\xe9\n")
    for prefix, message in (
        ("file/spiece", "cannot write .*file: .*choose another folder"),
        ("corpus/spiece", "output_prefix .*corpus/spiece is in .*corpus, the corpus"),
        ("out/", r"output_prefix is '.*out/', expected the beginning of the files' names, too: .*out/spiece"),
        ("spiece", r"latin.txt.*not UTF-8"),
    ):
        with pytest.raises(UserError, match=message):
            script.train(corpus, f"{tmp_path}/{prefix}", 90)
        assert not (tmp_path / "spiece.model").exists()
    (tmp_path / "corpus" / "latin.txt").write_text("Too short to train.\n")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(UserError, match=rf"cannot write {tmp_path}: Permission denied. Check your rights"):
        script.train(corpus, tmp_path / "spiece", 90)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_of_temporary_files_is_named(monkeypatch, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with files_of_at_most(4096), pytest.raises(UserError, match="SentencePiece ended with .*File too large"):
        training.train_tokenizer(invent_texts(600), 90)


def test_a_full_disk_leaves_no_part_of_a_tokenizer(small_tokenizer, tmp_path):
    prefix = str(tmp_path / "spiece")
    full = files_of_at_most(len(small_tokenizer.model_proto) - 1)
    with full, pytest.raises(UserError, match=r"cannot write .*spiece.model"):
        script.save(small_tokenizer, prefix, {})
    assert not list(tmp_path.iterdir())
    script.save(small_tokenizer, prefix, {})
    assert len(list(tmp_path.iterdir())) == 3
