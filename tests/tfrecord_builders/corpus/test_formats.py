"""Corpora of all formats: the same documents give the same lines; what is wrong is said with its place."""

import bz2
import dataclasses
import gzip
import json
import lzma
import subprocess
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders import corpus
from tfrecord_builders.common import streams
from xlnet_tf.errors import UserError

TEXT = make_text(80).replace("<eop>", "")
DOCUMENTS = TEXT.strip().split("\n\n")


def plan(path, slice_bytes, **options):
    sources = corpus.find_sources(corpus.CorpusOptions(input=[str(path)], **options))
    return list(corpus.plan_shards(sources, slice_bytes))


def read(path, slice_bytes=10**6, **options):
    """Returns the documents of a corpus, each as its lines, in all of its slices."""
    lines = [line for one in plan(path, slice_bytes, **options) for line in corpus.read_lines(one).lines]
    return [document.split("\n") for document in "\n".join(lines).strip("\n").split("\n\n")]


def write_jsonl(path, documents):
    """Writes documents; compressed ones in two members, or frames."""
    text = "".join(json.dumps({"id": i, "text": d}) + "\n" for i, d in enumerate(documents)).encode()
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(text[:500]) + pack(text[500:]))
    return path


def write_parquet(path, documents, row_group_size):
    table = pyarrow.table({"n": [{"a": 1, "b": 2}] * len(documents), "text": documents})
    pyarrow.parquet.write_table(table, path, row_group_size=row_group_size)
    return path


@pytest.mark.parametrize("slice_bytes", [1000, 3000, 10**6])
@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.json.gz", "a.jsonl.zst", "few.parquet", "many.parquet", "a.txt.zst"]
)
def test_formats_give_the_documents_of_the_plain_text(tmp_path, monkeypatch, name, slice_bytes):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 100)
    monkeypatch.setattr(streams, "_COMPRESSED_BLOCK_BYTES", 64)
    path = tmp_path / name
    if ".json" in name:
        write_jsonl(path, DOCUMENTS)
    elif "parquet" in name:
        write_parquet(path, DOCUMENTS, 30 if name.startswith("few") else 5)
    else:
        path.write_bytes(zstandard.compress(TEXT.encode()))
    assert read(path, slice_bytes) == [document.split("\n") for document in DOCUMENTS]
    slices = plan(path, slice_bytes)
    assert (len(slices) > 2) == (slice_bytes < 10**6)
    assert sum(one.source_bytes for one in slices) == path.stat().st_size
    whole = [corpus.read_lines(one) for one in slices]
    assert whole == [corpus.read_lines(one.without_text()) for one in slices]
    assert sum(lines.documents for lines in whole) == len(DOCUMENTS)
    assert all(one.num_bytes >= slice_bytes for one in slices[:-1])


def test_a_folder_with_many_formats_is_read_in_order(tmp_path):
    folder = tmp_path / "corpus"
    (folder / "b" / ".hidden").mkdir(parents=True)
    (folder / "a.txt").write_text("One.\n\nTwo.\n")
    write_jsonl(folder / "b" / "1.jsonl", ["Three."])
    write_parquet(folder / "b" / "2.parquet", ["Four."], 1)
    (folder / "c.log").write_text("Five.\n")
    for hidden in (folder / "b" / ".hidden" / "x.txt", folder / ".y.txt"):
        hidden.write_text("Never.\n")
    assert read(folder) == [["One."], ["Two."], ["Three."], ["Four."], ["Five."]]
    assert read(folder / "*") == read(folder)
    assert read(folder / "*" / "1*") == [["Three."]]
    assert read(folder / ".y*") == read(folder / "b" / ".*" / "*") == [["Never."]]
    assert read(folder / "[ab]*") == [["One."], ["Two."], ["Three."], ["Four."]]
    with pytest.raises(UserError, match="name the folder itself"):
        plan(folder / "**" / "*", 100)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no corpus file matches"):
        plan(tmp_path / "empty", 100)


def test_blank_lines_inside_documents_are_paragraph_marks(tmp_path):
    documents = [" \nA one. \r\nA two.\n\n \nB.<eop>\n\nC.\n\n", "D."]
    path = write_jsonl(tmp_path / "a.jsonl", documents)
    assert read(path) == [["A one.", "A two.<eop>", "B.<eop>", "C."], ["D."]]
    assert read(path, mark_paragraphs=False) == [["A one.", "A two.", "B.<eop>", "C."], ["D."]]
    for name, document in zip(("1.txt", "2.txt"), documents):
        (tmp_path / name).write_text(document)
    assert read(tmp_path / "*.txt", documents="files") == read(path)
    assert read(tmp_path / "*.txt") == [["A one.", "A two."], ["B.<eop>"], ["C."], ["D."]]


def test_empty_documents_are_counted_and_half_characters_replaced(tmp_path):
    documents = ["One.", "", " \n\n", "Two."]
    write_jsonl(tmp_path / "1.jsonl", documents)
    write_parquet(tmp_path / "2.parquet", [*documents, None], 2)
    (tmp_path / "3.txt").write_text("\n \n")
    (one,) = plan(tmp_path / "*", 10**6, documents="files")
    lines = corpus.read_lines(one)
    assert lines.lines == ["One.", "", "Two.", ""] * 2
    assert (lines.documents, lines.empty_documents) == (4, 6)
    (tmp_path / "a.jsonl").write_text('{"text": "x\\ud83d y"}\n{"text": "\\ud83d\\ude00"}\n')
    assert read(tmp_path / "a.jsonl") == [["x\ufffd y"], ["\U0001f600"]]


@pytest.mark.parametrize(
    "line,message",
    [
        (b"{'text': 1}", r"line 3 \(byte 28\) is not json .*, expected an object .*; found \{'text': 1\}"),
        (b'["x"]', r"line 3 .* is a json list, expected an object with a document's text, .*; found \["),
        (b"[" * 100_000, r"line 3 .* is not json \(.*recursion.*; found \[\["),
        (b'{"body": "x", "n": 1}', "line 3 .* the fields body, n, expected a field 'text': .*--text_field"),
        (b'{"text": null}', "line 3 .*: 'text' is null, expected a string"),
        (b'{"text": "caf\xe9"}', r"line 3 \(byte 41\) is not UTF-8 \(byte 0xe9\)"),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_errors_of_json_name_the_line(tmp_path, name, line, message):
    data = b'{"text": "A."}\n{"text":"B"}\n' + line + b"\n"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    with pytest.raises(UserError, match=f"{name}, {message}"):
        read(tmp_path / name)


def test_a_line_of_json_that_never_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus.text, "MAX_DOCUMENT_BYTES", 1000)
    write_jsonl(tmp_path / "a.jsonl", ["Short.", "x" * 5000, "Short."])
    with pytest.raises(UserError, match=r"a.jsonl, line 2 .* more than 1,000 bytes"):
        plan(tmp_path / "a.jsonl", 10)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_damaged_compression(tmp_path, pack):
    """Also after a member or frame that is whole."""
    path, data = tmp_path / f"a.txt.{'gz' if pack is gzip.compress else 'zst'}", pack(TEXT.encode())
    changed = data[:40] + b"\0\0\0\0" + data[44:]
    for damaged in (data[:-1], data[:-30], data[:3], changed, b"no compression at all"):
        for before in (b"", pack(b"Whole.\n")):
            path.write_bytes(before + damaged)
            with pytest.raises(
                UserError, match="a.txt.* cannot be read to its end: .*, after byte .*damaged"
            ):
                plan(path, 1000)


def pack_zstd(path, block, count, **options):
    """Writes a block many times over, as `zstd < input` does: without a size at the beginning."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, **options)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    with path.open("wb") as file:
        file.writelines(packer.compress(block) for _ in range(count))
        file.write(packer.flush())
    return path


READ_SLICES = r"""
import re, sys
import pyarrow.parquet, tfrecord_builders.corpus.parquet
from tfrecord_builders import corpus
from xlnet_tf.errors import UserError

def peak():
    return int(re.search(r"VmHWM:\s*(\d+)", open("/proc/self/status").read())[1])

before = peak()
try:
    sources = corpus.find_sources(corpus.CorpusOptions(input=sys.argv[1:]))
    print(sum(corpus.read_lines(one).num_bytes for one in corpus.plan_shards(sources, 4_000_000)))
except UserError as error:
    print(error)
print((peak() - before) * 1024)
"""


def read_in_process(path):
    """Reads a corpus in its own process; returns what it printed and by how many bytes its memory grew."""
    command = [sys.executable, "-c", READ_SLICES, str(path)]
    *lines, grown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return "\n".join(lines), int(grown)


@pytest.mark.integration
def test_zstd_that_unpacks_to_much_takes_little_memory(tmp_path):
    block = b"A word. " * 8 + b"\n\n"
    packed = pack_zstd(tmp_path / "a.txt.zst", block * 10_000, 500)
    assert packed.stat().st_size < 50_000
    printed, grown = read_in_process(packed)
    assert printed == str(len(block) * 5_000_000) and grown < 200e6


def test_a_line_without_an_end_is_refused_before_memory_holds_it(tmp_path):
    packed = pack_zstd(tmp_path / "a.txt.zst", b"word " * 200_000, 500)
    printed, grown = read_in_process(packed)
    assert "a.txt.zst, line 1 " in printed and "a line of at least 1,048,576 bytes" in printed
    assert grown < 150e6


def test_a_small_file_with_a_huge_window_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "_USUAL_WINDOW", 1 << 20)
    block = b"A word. " * 8 + b"\n\n"
    packed = pack_zstd(tmp_path / "a.txt.zst", block * 1000, 200, window_log=24)
    with pytest.raises(UserError, match="a.txt.zst cannot be read .* window of 16,777,216 bytes, .*--long"):
        plan(packed, 10**6)
    few = pack_zstd(tmp_path / "b.txt.zst", TEXT.encode(), 1, window_log=31)
    assert len(read(few)) == len(DOCUMENTS)


def test_compressed_files_with_another_name_are_named(tmp_path):
    for compressed, advice in (
        (gzip.compress(b"One.\n"), r"end in \.gz$"),
        (zstandard.compress(b"One.\n"), r"end in \.zst$"),
        (bz2.compress(b"One.\n"), r"unpack it \(bzip2 -d\)$"),
        (bz2.compress(b"One.\n", compresslevel=1), r"unpack it \(bzip2 -d\)$"),
        (lzma.compress(b"One.\n"), r"unpack it \(xz -d\)$"),
    ):
        (tmp_path / "a.txt").write_bytes(compressed)
        with pytest.raises(UserError, match=f"a.txt is compressed, .*{advice}"):
            read(tmp_path / "a.txt")


def test_zstd_with_skippable_frames(tmp_path):
    skipped = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    texts = map(zstandard.compress, (b"One.\n", b"Two.\n"))
    (tmp_path / "a.txt.zst").write_bytes(skipped + skipped.join(texts) + skipped)
    assert read(tmp_path / "a.txt.zst") == [["One.", "Two."]]


def prepare_dataset(folder, texts):
    """Prepares a data set as TensorFlow Datasets does it; returns its options."""
    import tensorflow_datasets as tfds

    tfds.dataset_builders.store_as_tfds_dataset(
        name="tiny_texts",
        version="1.0.0",
        data_dir=str(folder),
        disable_shuffling=True,
        features=tfds.features.FeaturesDict({"body": tfds.features.Text(), "n": np.int64}),
        split_datasets={"train": [(i, {"body": text, "n": i}) for i, text in enumerate(texts)]},
    )
    return corpus.CorpusOptions(tfds_name="tiny_texts", tfds_data_dir=str(folder), text_field="body")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return prepare_dataset(tmp_path_factory.mktemp("datasets"), [f"Text {i}.\n\nMore." for i in range(40)])


def test_a_prepared_data_set(dataset):
    sources = corpus.find_sources(dataclasses.replace(dataset, input=[]))  # as flags have it
    assert sources[0].name == "tiny_texts/1.0.0:train"
    slices = list(corpus.plan_shards(sources, 300))
    assert len(slices) > 2 and sum(one.source_bytes for one in slices) == sources[0].num_bytes
    lines = [line for one in slices for line in corpus.read_lines(one).lines]
    assert lines == [line for i in range(40) for line in (f"Text {i}.<eop>", "More.", "")]


def test_bad_texts_of_a_data_set(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus.datasets, "MAX_DOCUMENT_BYTES", 1000)
    for number, (text, message) in enumerate(
        (
            (b"x" * 1001, "example 2, 'body' has 1,001 bytes, expected at most 1,000"),
            (b"caf\xe9", r"example 2, 'body' is not UTF-8 \(byte 0xe9 at byte 4 of its"),
        )
    ):
        sources = corpus.find_sources(prepare_dataset(tmp_path / str(number), ["Fine.", text]))
        with pytest.raises(UserError, match=f"tiny_texts, {message}"):
            [corpus.read_lines(one) for one in corpus.plan_shards(sources, 300)]


def test_options_of_a_data_set_are_checked(dataset):
    for wrong, message in (
        ({"text_field": "n"}, "tiny_texts/1.0.0 has the texts body, expected 'n': .*--text_field"),
        ({"text_field": ""}, "text_field is empty"),
        ({"documents": "pages"}, "documents is 'pages', expected one of"),
        ({"tfds_split": "dev"}, "has the splits train, expected 'dev'"),
        ({"tfds_name": "no_such_set"}, "has no data set 'no_such_set'.*--tfds_name"),
        ({"tfds_name": "wikipedia/20230601.en"}, "no prepared 'wikipedia/20230601.en': prepare it first"),
    ):
        with pytest.raises(UserError, match=message):
            corpus.find_sources(dataclasses.replace(dataset, **wrong))


def test_planning_a_data_set_loads_no_tensorflow(dataset):
    program = (
        "import sys\nfrom tfrecord_builders import corpus\n"
        f"slices = list(corpus.plan_shards(corpus.find_sources(corpus.{dataset!r}), 300))\n"
        "sys.exit('tensorflow' in sys.modules or len(slices) < 3)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
