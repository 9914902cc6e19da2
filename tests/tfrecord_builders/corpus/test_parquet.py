"""Corpora of Parquet files: any type of strings, parts by stored sizes, what is damaged or too large."""

import gzip

import pyarrow
import pyarrow.parquet
import pytest

from tests.tfrecord_builders.corpus.test_formats import DOCUMENTS, plan, read, read_in_process, write_parquet
from tfrecord_builders import corpus
from xlnet_tf.errors import UserError


@pytest.mark.parametrize(
    "kind", [pyarrow.large_string(), pyarrow.string_view(), pyarrow.dictionary("int32", pyarrow.string())]
)
def test_parquet_with_any_type_of_strings(tmp_path, kind):
    """Pandas writes categories as dictionaries."""
    texts = pyarrow.array(["One.", "Two.", None, "One."], kind)
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [["One."], ["Two."], ["One."]]


def test_bad_parquet(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", DOCUMENTS, 10)
    for field, message in (
        ("body", "a.parquet has the columns n, text, expected 'body': .*--text_field"),
        ("n", "column 'n' holds struct.*, expected strings"),
    ):
        with pytest.raises(UserError, match=message):
            plan(path, 1000, text_field=field)
    whole = path.read_bytes()
    for damaged in (whole[:-20], whole[:100] + b"\0" * 2000 + whole[2100:]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="a.parquet cannot be read as parquet .*damaged"):
            read(path)
    (tmp_path / "b.parquet.gz").write_bytes(gzip.compress(whole))
    with pytest.raises(UserError, match="parquet inside of gzip"):
        plan(tmp_path / "b.parquet.gz", 1000)


@pytest.mark.integration
@pytest.mark.parametrize("row_group_size", [200, 7])
def test_parquet_that_stores_a_long_text_once_takes_little_memory(tmp_path, row_group_size):
    texts = pyarrow.DictionaryArray.from_arrays([0] * 200, ["A sentence. " * 170_000])
    table = pyarrow.table({"text": texts})
    pyarrow.parquet.write_table(
        table, tmp_path / "a.parquet", row_group_size=row_group_size, compression="zstd"
    )
    assert (tmp_path / "a.parquet").stat().st_size < 20_000
    printed, grown = read_in_process(tmp_path / "a.parquet")
    assert int(printed) // 10**6 == 408 and grown < 300e6


def test_parquet_with_a_few_long_texts_among_short_ones(tmp_path):
    texts = ["Short."] * 500 + ["Long. " * 10_000] * 50
    slices = plan(write_parquet(tmp_path / "a.parquet", texts, 1000), 50_000)
    assert [text for one in slices for text in corpus.read_lines(one).documents_text()] == [
        text.strip().encode() for text in texts
    ]
    assert max(corpus.read_lines(one).num_bytes for one in slices) <= 4 * 100_000 + 60_001


def test_parquet_slices_follow_the_stored_sizes(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [f"Text {i}. " * (1 + i % 3) for i in range(3000)], 500)
    starts = [part.start for one in plan(path, 5000) for part in one.parts]
    assert starts == [0, 202, 500, 698, 1000, 1183, 1500, 1684, 2000, 2183, 2500, 2683]


def test_a_text_or_pages_of_parquet_that_are_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus.parquet, "MAX_DOCUMENT_BYTES", 1000)
    path = write_parquet(tmp_path / "a.parquet", ["Short.", None, "x" * 1001, "Short."], 3)
    with pytest.raises(UserError, match="a.parquet, row 3: a text of 1,001 bytes, expected at most 1,000"):
        plan(path, 10)
    monkeypatch.setattr(corpus.parquet, "_SUSPICIOUS_BYTES", 10**6)
    table = pyarrow.table({"text": ["word " * 100_000] * 10})
    pyarrow.parquet.write_table(table, path, use_dictionary=False, compression="zstd")
    with pytest.raises(UserError, match="a.parquet, row group 1: [0-9,]+ bytes unpack to 5,000,[0-9]+, over"):
        plan(path, 10)


def test_parquet_that_is_not_utf8(tmp_path):
    values = pyarrow.array([b"Fine."] * 20 + [b"caf\xe9"] + [b"Fine."])
    texts = pyarrow.StringArray.from_buffers(len(values), *values.buffers()[1:])
    packed = pyarrow.DictionaryArray.from_arrays(list(range(22)), texts)
    for column, message in (
        (texts, r", row 21, column 'text' is not UTF-8 \(byte 0xe9 at byte 4 of its text\)"),
        (packed, " cannot be read as parquet .*column 'text': Invalid UTF8"),
    ):
        table = pyarrow.table({"id": range(22), "text": column})
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
        with pytest.raises(UserError, match=f"a.parquet{message}"):
            read(tmp_path / "a.parquet")


def test_two_columns_of_parquet_with_the_same_name(tmp_path):
    table = pyarrow.table([["One."], ["Two."], ["Three."]], names=["text", "id", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UserError, match="a.parquet has 2 columns with the name 'text', expected one: rename"):
        read(tmp_path / "a.parquet")
    table = pyarrow.table([["One."], ["Two."], ["Three."]], names=["id", "text", "id"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [["Two."]]
