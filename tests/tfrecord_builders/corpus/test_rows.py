"""Rows of corpora: however a corpus is cut, each row comes once; one that is damaged spoils no other."""

import csv
import gzip
import io
import json

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.profiles import examples
from tfrecord_builders import corpus
from tfrecord_builders.common import streams
from tfrecord_builders.corpus import delimited
from xlnet_tf.errors import UserError

# What separates, ends, quotes and escapes somewhere.
_TEXT = st.text(st.sampled_from('ab,"\t\n\r{}\\é𝄞 '), max_size=12)
_ROWS = st.lists(st.fixed_dictionaries({"text": _TEXT, "n": _TEXT}), min_size=1, max_size=30)


def rows_of(path, shard_bytes=10**6, **options):
    """Returns the rows of a corpus, through all of its shards."""
    sources = corpus.find_sources(corpus.CorpusOptions(input=[str(path)], **options), tables=True)
    return [row for shard in corpus.plan_shards(sources, shard_bytes) for row in corpus.read_rows(shard)]


def pack(path, data):
    compressed = {".gz": gzip.compress, ".zst": zstandard.compress}.get(path.suffix, bytes)
    path.write_bytes(compressed(data))


@examples(25, 500)
@given(
    rows=_ROWS,
    kind=st.sampled_from(["jsonl", "csv", "parquet"]),
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    compression=st.sampled_from(["", ".gz", ".zst"]),
    shard_bytes=st.integers(1, 300),
)
def test_rows_do_not_depend_on_the_cuts(
    rows, kind, delimiter, end, compression, shard_bytes, tmp_path_factory
):
    path = tmp_path_factory.mktemp("rows") / f"a.{kind}{compression if kind != 'parquet' else ''}"
    if kind == "jsonl":
        pack(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
    elif kind == "csv":
        table = io.StringIO(newline="")
        if end == "\r":  # a line feed in a text would be the line's end
            rows = [{name: text.replace("\n", "") for name, text in row.items()} for row in rows]
        quoting = csv.QUOTE_MINIMAL if end == "\r\n" else csv.QUOTE_ALL  # the other end is text
        writer = csv.DictWriter(
            table, ["text", "n"], delimiter=delimiter, lineterminator=end, quoting=quoting
        )
        writer.writeheader()
        writer.writerows(rows)
        pack(path, table.getvalue().encode())
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=4)
    with pytest.MonkeyPatch.context() as patched:
        for module in (streams, delimited):
            patched.setattr(module, "BLOCK_BYTES", 17 if end == "\r" else 7)  # with the end of the header
        found = rows_of(path, shard_bytes)
    assert [dict(row.values) for row in found] == rows and not any(row.error for row in found)


def test_lines_and_documents_of_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\n two \r\n\n\n\nthree\nno \xff\nend")
    found = rows_of(path, documents="lines")
    assert [row.values.get("text") for row in found] == ["one", "two", "three", None, "end"]
    assert found[3].error == "byte 4 of the row (0xff) is not UTF-8"
    assert found[3].location == {"source": str(path), "line": 7, "byte": 23}
    assert [row.values.get("text") for row in rows_of(path)] == ["one\n two", None]
    assert [row.error != "" for row in rows_of(path, documents="files")] == [True]
    path.write_text("\n\none\n\n\n two\n\n \n\nthree\n\n\n\n\nfour\n\n\n")
    found = [(row.location["line"], row.values["text"]) for row in rows_of(path)]
    assert found == [(3, "one"), (6, "two"), (10, "three"), (15, "four")]
    path.write_bytes("one row\nanother\n".encode("utf-16"))
    first, second, *rest = rows_of(path, documents="lines")
    assert "UTF-16" in first.error and "UTF-16" in second.error and all(row.error for row in rest)
    (tmp_path / "a.csv").write_bytes('"text\nof a row",n\n"a, b",1\n'.encode("utf-8-sig"))
    assert [row.values for row in rows_of(tmp_path / "a.csv")] == [{"text\nof a row": "a, b", "n": "1"}]


def test_a_document_that_is_cut_is_one_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("short\n\n" + "long line\n" * 30 + "\nlast\n")
    found = rows_of(path, 50)
    assert [row.values.get("text") for row in found] == ["short", None, "last"]
    assert found[1].error.startswith("a document of more than") and "--shard_mb" in found[1].error


@pytest.mark.parametrize(
    ("name", "data", "errors"),
    [
        (
            "a.jsonl",
            b'{"text": "a"}\n[1]\n{"text": \n\n{"text": "\xff"}\n{"text": "\\ud800"}\n{"text": "b"}\n',
            {2: "a json list, expected an object", 3: "not json", 5: "is not UTF-8", 6: "half a character"},
        ),
        ("b.jsonl", b'{"text":"a"}\n{"text":"c", "text":"d"}\n{"text":"b"}', {2: '"text" is given twice'}),
        ("d.csv", b"text;n\ra;1\rc\rb;2\r", {3: "1 fields where there are 2 columns (text, n)"}),
        (
            "a.csv",
            b'text,n\na,1\nb\n"b",1,2\n"b"c,1\n\xff,1\n\nb,2\n',
            {3: "1 fields where there are 2", 4: "3 fields", 5: "bad quoting", 6: "byte 1 of the row (0xff)"},
        ),
        ("b.csv", b'text,n\na,8" pipe\n3" nail\nb,"1"\n', {3: "1 fields where there are 2"}),
        ("e.csv", b'text,n\na,1\n"x"y,"over\ntwo"\nb,2\n', {3: "bad quoting"}),
        ("c.csv", b'text\na\nc\rd\n"b"\r\n', {3: "bad quoting (a carriage return outside of quotes)"}),
        ("a.tsv", b'text\tn\na\t1\n"b\nb\t2', {3: "1 fields where there are 2 columns (text, n)"}),
    ],
)
def test_a_damaged_row_spoils_no_other(tmp_path, name, data, errors):
    (tmp_path / name).write_bytes(data)
    found = rows_of(tmp_path / name, 20)
    assert [row.values["text"] for row in found if not row.error] == ["a", "b"]
    damaged = {row.location["line"]: row.error for row in found if row.error}
    assert damaged.keys() == errors.keys()
    assert all(errors[line] in damaged[line] for line in errors)


def test_a_damaged_row_of_parquet_has_its_number(tmp_path):
    column = pyarrow.array([b"a", b"b\xff", b"c"]).cast(pyarrow.binary()).view(pyarrow.string())
    days = pyarrow.array([0, 1, 2], pyarrow.date32())
    table = pyarrow.table({"text": column, "day": days, "x": [1.5, None, 2]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    first, second, third = rows_of(tmp_path / "a.parquet")
    assert first.values == {"text": "a", "day": "1970-01-01", "x": 1.5} and third.values["text"] == "c"
    assert second.values["text"] == r"b\xff" and second.location["row"] == 2
    assert [corpus.is_text(row.values["text"]) for row in (first, second, third)] == [True, False, True]


def test_values_of_parquet_that_python_has_no_type_for_are_texts(tmp_path):
    """They are written next to the answers, for which nobody reads them."""
    far = pyarrow.array([3_000_000, None], pyarrow.date32())
    columns = {
        "text": ["a", "b"],
        "image": [{"bytes": b"\xff\xd8", "path": "a.jpg"}, None],
        "sound": [b"\xff", b"plain"],
        "latin": pyarrow.array([b"caf\xe9", b"plain"]).view(pyarrow.string()),
        "day": far,
        "at": pyarrow.array([10**15, None], pyarrow.timestamp("ms")),
        "took": pyarrow.array([10**17, None], pyarrow.duration("s")),
        "when": pyarrow.array([10**9, None], pyarrow.timestamp("s", tz="Mars/Olympus")),
        "who": pyarrow.array([{"born": far[0], "name": "me"}, None], pyarrow.struct(
            {"born": pyarrow.date32(), "name": pyarrow.string()}
        )),
        "map": pyarrow.array([[("a", far[0])], []], pyarrow.map_(pyarrow.string(), pyarrow.date32())),
    }  # fmt: skip
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    first, second = rows_of(tmp_path / "a.parquet")
    assert not first.error and not second.error and json.dumps([first.values, second.values])
    assert first.values["text"] == "a" and second.values["sound"] == second.values["latin"] == "plain"
    day = "10183-09-21"
    expected = {"image": {"bytes": r"\xff\xd8", "path": "a.jpg"}, "sound": r"\xff", "latin": r"caf\xe9"}
    expected |= {"day": day, "when": "2001-09-09 01:46:40+00:00", "who": {"born": day, "name": "me"}}
    assert first.values.items() >= expected.items() and day in json.dumps(first.values["map"])
    assert "1000000000000000" in first.values["at"] and "100000000000000000" in first.values["took"]
    nulls = {name for name, value in second.values.items() if value is None}
    assert nulls == {"image", "day", "at", "took", "when", "who"}


def test_rows_of_parquet_need_no_column_of_a_certain_name(tmp_path):
    """Models of pairs and of questions have other inputs than a text."""
    rows = [{"n": n, "question": f"which {n}?", "context": "this"} for n in range(9)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert [row.values for row in rows_of(tmp_path / "a.parquet", 20)] == rows
    with pytest.raises(UserError, match="has the columns n, question, context, expected 'text'"):
        corpus.find_sources(corpus.CorpusOptions(input=[str(tmp_path / "a.parquet")]))
    pyarrow.parquet.write_table(pyarrow.table({"n": [1]}), tmp_path / "b.parquet")
    with pytest.raises(UserError, match="has the columns n, expected 'text'"):
        rows_of(tmp_path / "b.parquet")


def test_builders_take_lines_as_documents(tmp_path):
    (tmp_path / "a.txt").write_text("one.\ntwo.\n\nthree.\n")
    sources = corpus.find_sources(corpus.CorpusOptions(input=[str(tmp_path / "a.txt")], documents="lines"))
    lines = [line for shard in corpus.plan_shards(sources, 1) for line in corpus.read_lines(shard).lines]
    assert lines == ["one.", "", "two.", "", "three.", ""]


def test_a_damaged_header_is_an_error(tmp_path):
    for data, message in ((b"a,a\n1,2\n", "the same name in a, a"), (b"\xff,b\n", "the first row, which")):
        (tmp_path / "a.csv").write_bytes(data)
        with pytest.raises(UserError, match=message):
            rows_of(tmp_path / "a.csv")
