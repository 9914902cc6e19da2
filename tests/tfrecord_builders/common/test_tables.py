"""Tables in all their spellings become the same rows; whatever is wrong is told with file and line."""

import csv
import dataclasses
import gzip
import io
import itertools
import json
import os

import pytest
import zstandard
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrecord_builders.common import delimited, tables
from tfrecord_builders.common.rows import whole_number, zero_or_one
from tfrecord_builders.common.streams import Stream
from tfrecord_builders.common.tables import TableFormat, decoded_lines, infer_format, read_table
from xlnet_tf.errors import UserError

CSV = TableFormat("csv", quoting=True)
CSV_OF_COMMAS = TableFormat("csv", quoting=True, delimiter=",")
TSV = TableFormat("tsv")
JSONL = TableFormat("jsonl")
FOLDERS = TableFormat("folders")


def rows(path, table, **options):
    return [(row.values, row.line) for row in read_table(path, table, **options)]


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data"


def test_each_format_gives_the_same_rows(tmp_path):
    expected = [{"text": 'He said "no".', "label": "1"}, {"text": "Ünder, all", "label": "0"}]
    texts = {
        "a.csv": 'text,label\r\n"He said ""no"".",1\r\n"Ünder, all",0\r\n',
        "b.tsv": 'text\tlabel\nHe said "no".\t1\nÜnder, all\t0',
        "c.jsonl": '{"text": "He said \\"no\\".", "label": 1}\n\n{"text": "Ünder, all", "label": false}\n',
    }
    for name, text in texts.items():
        compressions = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
        for suffix, data in ((suffix, compress(text.encode())) for suffix, compress in compressions.items()):
            for packed in (name + suffix, (name + suffix).upper()):
                path = write(tmp_path / packed, data)
                assert [row.values for row in read_table(path, infer_format(path))] == expected, path
    at = write(tmp_path / "d.txt", 'He said "no".@1\nÜnder, all@0\n'.encode("latin-1"))
    assert [row.values for row in read_table(at, TableFormat("at", encoding="latin-1"))] == expected
    for number, row in enumerate(expected):
        folder = tmp_path / "folders" / row["label"]
        folder.mkdir(parents=True)
        write(folder / f"{number}.txt", row["text"])
    folders = list(read_table(tmp_path / "folders", infer_format(tmp_path / "folders")))
    assert [{k: row.values[k] for k in ("text", "label")} for row in folders] == expected[::-1]
    assert [row["id"] for row in folders] == ["0/1", "1/0"]
    assert folders[0].location == str(tmp_path / "folders" / "0" / "1.txt")


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=2, max_size=2),
        min_size=1,
    )
)
def test_quoted_csv_round_trips_and_knows_its_lines(tmp_path_factory, fields):
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["a", "b"])
    lines = []
    for row in fields:
        lines.append(buffer.getvalue().count("\n") + 1)
        writer.writerow(row)
    path = write(tmp_path_factory.mktemp("csv") / "t.csv", buffer.getvalue())
    found = rows(path, CSV)
    assert [list(values.values()) for values, _ in found] == fields
    # A lone carriage return ends no line of the file.
    if not any("\r" in field for row in fields for field in row):
        assert [line for _, line in found] == lines


UNHEADED = TableFormat("tsv", header=False)
SEMICOLONS = TableFormat("csv", header=False, quoting=True, delimiter=";")
ESCAPED = TableFormat("csv", header=False, quoting=True, replaced=(("\\n", "\n"), ('\\"', '"')))


@pytest.mark.parametrize(
    ("data", "table", "expected"),
    [
        ("text\tlabel\na\u2028b\x0cc\u0085d\t1\n", TSV, {2: {"text": "a\u2028b\x0cc\u0085d", "label": "1"}}),
        ("\na\tb\n\nc\td\n\n", UNHEADED, {2: {"0": "a", "1": "b"}, 4: {"0": "c", "1": "d"}}),
        ("text\na\n\nb\n", TSV, {2: {"text": "a"}, 3: {"text": ""}, 4: {"text": "b"}}),
        ("text\na\n\nb\n", CSV, {2: {"text": "a"}, 3: {"text": ""}, 4: {"text": "b"}}),
        ('"1","so \\""good\\"" \\n really"\n', ESCAPED, {1: {"0": "1", "1": 'so "good" \n really'}}),
        ("a;b\nc;d", SEMICOLONS, {1: {"0": "a", "1": "b"}, 2: {"0": "c", "1": "d"}}),
        # A text without a header, as likely as two columns.
        ("a;b\n", dataclasses.replace(SEMICOLONS, delimiter=""), {1: {"0": "a;b"}}),
        ("n,x\n18446744073709551617,+49171\n0x10,007\n", CSV,
         {2: {"n": "18446744073709551617", "x": "+49171"}, 3: {"n": "0x10", "x": "007"}}),
        ("text\tn\ra\t1\r\rb\t2", TSV, {2: {"text": "a", "n": "1"}, 4: {"text": "b", "n": "2"}}),
        ('{"a": 1}\r{"a": 2}\r', JSONL, {1: {"a": "1"}, 2: {"a": "2"}}),
        ('{"a": 1.5, "b": true, "c": null, "d": ["x", 2], "e": 18446744073709551617}', JSONL,
         {1: {"a": "1.5", "b": "1", "c": "", "d": ["x", "2"], "e": "18446744073709551617"}}),
    ],
)  # fmt: skip
def test_rows_by_their_lines(file, data, table, expected):
    write(file, data)
    assert rows(file, table) == [(values, line) for line, values in expected.items()]


def test_a_byte_order_mark_is_removed(file, tmp_path):
    (tmp_path / "folders" / "1").mkdir(parents=True)
    for encoding, mark in itertools.product(("utf-8", "UTF_8_SIG"), ("", "\ufeff")):
        write(file, mark + "text\tlabel\nä\t1\n")
        assert rows(file, TableFormat("tsv", encoding=encoding)) == [({"text": "ä", "label": "1"}, 2)]
        write(tmp_path / "folders" / "1" / "a.txt", mark + "ä")
        found = rows(tmp_path / "folders", TableFormat("folders", encoding=encoding))
        assert found == [({"id": "1/a", "text": "ä", "label": "1"}, 0)]


def test_lists_and_objects_are_no_text_but_parts_are_and_null_is_the_default(file):
    values = {"text": {"en": "x", "de": "y"}, "a": "{set}", "a.1": "x", "b": '{"c": 1}', "b.1": "y"}
    write(file, json.dumps(values | {"l": ["x"]}))
    [row] = read_table(file, JSONL)
    assert [row.text(name) for name in ("text.de", "a", "b")] == ["y", "{set}", '{"c": 1}']
    for name, message in (("text", r"is an object, .* parts \(text.en"), ("l", "is a list")):
        with pytest.raises(UserError, match=f"data:1: column '{name}' {message}"):
            row.text(name)
    write(file, '{"id": "a"}\n{"id": null}\n{"id": ""}\n{"id": 0}\n{}\n')
    assert [row.text_or("id", "?") for row in read_table(file, JSONL)] == ["a", "?", "?", "0", "?"]
    write(file, f'text,label\n"{"word " * 100_000}",1\n')  # long fields, too
    assert len(rows(file, CSV)[0][0]["text"]) == 500_000


@pytest.mark.parametrize(
    ("data", "table", "message"),
    [
        ("text\tlabel\na\t1\nb\t1\t2\n", TSV, r"data:3: 3 fields where there are 2 columns \(text, label\)"),
        ("text,label\na,1\nb\n", CSV, r"data:3: 1 fields where there are 2 columns"),
        ("text;label\na, b;1;2\n", CSV, r"data:2: 3 fields .*the delimiter is ';'"),
        ("a;b\n1,2;3,4\n", CSV_OF_COMMAS, r"data:2: 3 fields .*separated by ';': save the table with commas"),
        (gzip.compress(b"text\tlabel\n", mtime=0), TSV, r"data:1: the file is compressed: .*\.gz"),
        (b"PK\x03\x04\xf5\n", CSV, r"data:1: the file is compressed: save a spreadsheet as \.csv"),
        (b"text\tlabel\nok\t1\ncaf\xe9\t0\n", TSV, r"data:3: byte 4 \(e9\) is not utf-8: .*--encoding"),
        ('text,label\na,1\n"b,1\n', CSV, r"data:3: bad quoting .*quotes as text"),
        ('text,label\n"a";1\n', CSV, r"data:2: bad quoting .*the delimiter is ',': .*another --delimiter"),
        ("text,label\na\rb,1\n", CSV, r"data:2: bad quoting \(a carriage return outside of quotes\)"),
        ('{"text": "a", "label": 1, "text": "b"}', JSONL, r'data:1: "text" is given twice: keep one'),
        ("text\ttext\na\t1\n", TSV, r"data:1: two columns have the same name"),
        ('{"text": 1}\n{"text"\n', JSONL, r"data:2: not json"),
        ('{"text": ["\\ud83d\\ude00", "\\ud83d"]}\n', JSONL, r"data:1: '.ud83d' is half"),
        ("[" * 100_000, JSONL, r"data:1: not json"),
        ("[1]\n", JSONL, r"data:1: a json list, expected an object"),
        ("a@1\nb\n", TableFormat("at"), r"data:2: no @ in the line"),
        ("a\n", TableFormat("tsv", encoding="utf-16"), r"utf-16 cannot be read line by line"),
        ("a\n", TableFormat("tsv", encoding="klingon"), r"no encoding 'klingon'"),
        ("a\n", TableFormat("folders"), r"is a file, which cannot be read as folders"),
    ],
)
def test_errors_of_tables_name_file_and_line(file, data, table, message):
    write(file, data)
    with pytest.raises(UserError, match=message):
        list(read_table(file, table))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("header", ["a%sb", '"a"%s"b"', '\n"a,;c"%sb'])
def test_a_header_shows_the_delimiter_of_csv(file, delimiter, end, header):
    """Whatever ends the lines; quotes hide other delimiters and line ends."""
    hidden = f"x{delimiter}y,;{end}z"
    write(file, end.join([header.replace("\n", end) % delimiter, f'"{hidden}"{delimiter}1', ""]))
    [(values, line)] = rows(file, CSV)
    assert list(values.values()) == [hidden, "1"] and line == 3 if header.startswith("\n") else 2


@given(st.text(), st.integers(0, 10**12))
def test_spellings_of_numbers_and_truths(text, number):
    spelled = {whole_number(f"{number}{rest}") for rest in ("", ".", ".0", ".00")}
    assert spelled == {number if number < 10**9 else None} and zero_or_one(text) in (None, 0, 1)
    spellings = (("0", "0.0", "false", "False", "FALSE "), ("1", "1.", "True", " tRUE"))
    assert [{*map(zero_or_one, of_value)} for of_value in spellings] == [{0}, {1}]
    assert {*map(zero_or_one, ("", "-1", "1.5", "2", "1e0", "maybe", "1.0.0"))} == {None}


def test_ragged_rows_may_be_skipped_and_missing_columns_are_named(file):
    write(file, "text\tlabel\na\t1\nb\nc\t0\n")
    heard = []
    found = rows(file, TSV, skip=lambda reason, place: heard.append((reason, place)))
    assert [values["text"] for values, _ in found] == ["a", "c"]
    assert heard == [("1 fields where there are 2 columns", f"{file}:3")]
    with pytest.raises(UserError, match=r"data:2: there is no column 'sentence', only text, label"):
        next(read_table(file, TSV))["sentence"]
    write(file, "text,label\na,1\n")
    with pytest.raises(UserError, match=r"separated by ',': save the table with commas \(.csv\) or tabs"):
        next(read_table(file, TSV))["text"]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.gz", "t.jsonl.gz"])
def test_a_line_that_is_too_long_is_refused_before_memory_holds_it(tmp_path, monkeypatch, name):
    monkeypatch.setattr(tables, "MAX_TEXT_BYTES", 5000)
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 100)
    data, lines = b'{"text": 1}\n' + b"x" * 10**6, []
    write(tmp_path / name, gzip.compress(data) if name.endswith("gz") else data)
    with pytest.raises(UserError, match=f"{name}:2: a line of more than 5,000 bytes"):
        lines.extend(decoded_lines(tmp_path / name, "utf-8"))
    assert lines == [(1, '{"text": 1}\n')]
    with Stream(epath.Path(tmp_path / name)) as stream:
        assert max(map(len, delimited.lines(stream, 5000))) < 6000
    (tmp_path / "texts/good").mkdir(parents=True)
    write(tmp_path / "texts/good/1.txt", "x" * 5001)
    with pytest.raises(UserError, match="1.txt: a text of 5,001 bytes, expected at most 5,000"):
        list(read_table(tmp_path / "texts", FOLDERS))


def test_files_that_are_not_there_or_of_unknown_format(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for there in ("x.csv.xz", "x.txt"):
        write(tmp_path / there, "")
    for name, table, message in (
        ("x.csv,", CSV, "x.csv, does not exist: check its name; only one"),
        ("pipe.csv", CSV, "pipe.csv is a pipe or a device, which cannot be read twice"),
        ("x.csv", None, "x.csv does not exist: check its name$"),
        ("x.csv.xz", None, "x.csv.xz is compressed as .xz, which tables cannot be: unpack it"),
        ("x.txt", None, "end it in .csv, .tsv, .jsonl, .parquet or .arrow"),
        ("", FOLDERS, "has no folders: expected a folder of .txt files"),
        ("", dataclasses.replace(FOLDERS, folders=("neg", "pos")), "no .txt files in neg, pos, expected"),
        ("", dataclasses.replace(FOLDERS, folders=tuple("abcdefg")), "in a, b, c, d, e and 2 more, expected"),
    ):
        with pytest.raises((UserError, FileNotFoundError), match=message):
            list(read_table(tmp_path / name, table or infer_format(tmp_path / name)))
    (tmp_path / "a").mkdir()
    write(tmp_path / "a/b.txt", "")
    with pytest.raises(UserError, match="no encoding 'klingon': try utf-8"):
        list(read_table(tmp_path, dataclasses.replace(FOLDERS, encoding="klingon")))


def test_folders_of_any_names_are_labels_unless_hidden(tmp_path):
    """Names are no patterns, endings may be large; what programs hide next to the texts is none of them."""
    names = [b"C*/A.TXT", b"[x]/b.txt", b"[x]/._b.txt", b"[x]/notes.md", b".ipynb_checkpoints/c.txt"]
    for name in (*names, b"d.txt", b"good\xff/1\xe9.txt"):
        path = tmp_path / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        write(path, name)
    found = [values for values, _ in rows(tmp_path, dataclasses.replace(FOLDERS, encoding="latin-1"))]
    assert found == [
        {"id": "C*/A", "text": "C*/A.TXT", "label": "C*"},
        {"id": "[x]/b", "text": "[x]/b.txt", "label": "[x]"},
        {"id": r"good\udcff/1\udce9", "text": "good\xff/1\xe9.txt", "label": r"good\udcff"},  # spelt in UTF-8
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no .txt files in empty, expected a folder of them for each"):
        next(read_table(tmp_path, FOLDERS))
