import gzip
import os

import pytest

from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders import corpus
from tfrecord_builders.common import streams
from tfrecord_builders.corpus.files import find_files
from xlnet_tf.errors import UserError


def plan(paths, slice_bytes, **options):
    sources = corpus.find_sources(corpus.CorpusOptions(input=[str(path) for path in paths], **options))
    return list(corpus.plan_shards(sources, slice_bytes))


def pack(path, data):
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")


def documents_of(lines):
    return [d.split("\n") for d in "\n".join(lines).strip("\n").split("\n\n") if d]


@pytest.mark.parametrize("slice_bytes", [1000, 5000, 10**7])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_slices_are_the_corpus_cut_at_documents(tmp_path, slice_bytes, suffix, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 64)
    texts = [make_text(20, seed) for seed in range(4)] + ["", "\n\n \n", "one line without an end"]
    paths = [pack(tmp_path / f"{n}.txt{suffix}", text.encode()) for n, text in enumerate(texts)]
    slices = plan(paths, slice_bytes)
    lines = [corpus.read_lines(s).lines for s in slices]
    expected = [d.split("\n") for text in texts for d in text.strip().split("\n\n") if d]
    assert [d for part in lines for d in documents_of(part)] == expected
    assert all(part[-1] == "" for part in lines)
    assert [s.index for s in slices] == list(range(len(slices)))
    assert sum(s.num_bytes for s in slices) == sum(len(text.encode()) for text in texts)
    assert sum(s.source_bytes for s in slices) == sum(path.stat().st_size for path in paths)
    longest = max(len("\n".join(d)) for d in expected)
    assert all(slice_bytes <= s.num_bytes <= slice_bytes + longest + 10 for s in slices[:-1])
    assert slice_bytes / 2 <= slices[-1].num_bytes or len(slices) == 1


def test_byte_order_mark_and_blank_lines(tmp_path):
    pack(tmp_path / "a.txt", b"\xef\xbb\xbf\n\n  \nOne. \r\nTwo.\n \t\n\n\nThree.")
    pack(tmp_path / "b.txt", b"Four.\n")
    [one] = plan([tmp_path], 10**6)
    assert corpus.read_lines(one).lines == ["One.", "Two.", "", "Three.", "", "Four.", ""]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("slice_bytes", [1000, 10**8])
def test_text_that_is_not_utf8_or_a_line_of_3_mb_is_refused(tmp_path, name, slice_bytes):
    head = ("Zwölf Sätze.\n" * 300).encode()
    for line, message in (
        ("Überall Umlaute".encode("latin-1"), rf"\(byte {len(head)}\) is not UTF-8"),
        (b"x" * 3_000_000, r"\(byte \d+\): a line of at least [\d,]+ bytes, expected at most 1,048,576"),
    ):
        path = pack(tmp_path / name, head + line + b"\nend\n")
        with pytest.raises(UserError, match=f"{name}, line 301 {message}"):
            [corpus.read_lines(s) for s in plan([path], slice_bytes)]


def test_other_files_are_not_read_as_text(tmp_path):
    for name, what in {
        "a.tar.gz": "a .tar file.*: unpack it",
        "a.ZIP": "a .zip file.*: unpack it",
        "a.csv": "a .csv file.*: its rows are not sentences: write its text as jsonl or parquet",
        "a.PDF": "a .pdf file.*: write its text as plain text",
        "a.png": "a .png file.*: it holds no text: leave it out",
    }.items():
        path = pack(tmp_path / name, b"whatever")
        with pytest.raises(UserError, match=f"{name} is {what}"):
            plan([path], 1000)
    for name in ("README", "a.md", "europarl.pt", "wiki.2024.05", "a.en.gz"):
        [one] = plan([pack(tmp_path / name, b"One.\n")], 1000)
        assert corpus.read_lines(one).lines == ["One.", ""]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz"])
@pytest.mark.parametrize("encoding,first", [("utf-16-le", 1), ("utf-16-be", 0), ("utf-16", 3)])
def test_utf16_is_reported(tmp_path, name, encoding, first):
    path = tmp_path / name
    for text in ("One sentence.\n", '{"text": "Кто там?"}\n'):
        pack(path, (20 * text).encode(encoding))
        with pytest.raises(
            UserError, match=rf"{name}, line 1 \(byte {first}\) is a NUL byte, .*iconv -f utf-16"
        ):
            corpus.read_lines(*plan([path], 1000))
    pack(path, ("\u4e2d\u6587" * 99).encode("utf-16"))  # has no NUL byte, but a mark
    if name == "a.txt":
        with pytest.raises(UserError, match=r"byte 0\) is not UTF-8 .*`iconv -f utf-16 -t utf-8`"):
            corpus.read_lines(*plan([path], 1000))


def test_a_few_nul_bytes_stay_and_are_counted(tmp_path):
    pack(tmp_path / "a.txt", b"One.\n" * 300 + b"T\0wo.\n\0\n")
    pack(tmp_path / "b.txt", b"Three.\n" * 300)
    lines = corpus.read_lines(*plan([tmp_path], 10_000))
    assert lines.nul_bytes == {"a.txt": 2} and lines.lines[300:302] == ["T\0wo.", "\0"]


def test_missing_and_empty_files(tmp_path):
    for name, message in (("nothing*.txt", r".*nothing\*\.txt.: check its name"), ("nothing.txt", "")):
        with pytest.raises(FileNotFoundError, match=f"no corpus file matches {message}"):
            find_files([str(tmp_path / name)])
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match="the corpus is empty"):
        find_files([str(tmp_path / "*.txt")])
    write(tmp_path, "part[1].txt", "b/2.txt", "b/1.txt", "a/3.txt")
    found = find_files([f"{tmp_path}/{name}" for name in ("part[1].txt", "b/1.txt", "*/*.txt")])
    assert [path.name for path in found] == ["part[1].txt", "1.txt", "3.txt", "2.txt"]


def test_a_file_is_read_once_whatever_its_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a.txt", "b.txt", "sub/c.txt")
    (tmp_path / "link.txt").symlink_to("a.txt")
    spellings = ["b.txt", f"{tmp_path}/a.txt", "a.txt", f"{tmp_path}/sub/../b.txt", "link.txt", "sub"]
    assert list(map(str, find_files(spellings))) == ["b.txt", f"{tmp_path}/a.txt", "sub/c.txt"]


def test_links_back_to_a_folder_are_not_followed(tmp_path):
    write(tmp_path, "one/a.txt", "two/b.txt")
    (tmp_path / "one/self").symlink_to(".")
    (tmp_path / "one/to").symlink_to("../two")
    (tmp_path / "two/back").symlink_to("../one")
    found = [str(path.relative_to(tmp_path)) for path in find_files([str(tmp_path / "one")])]
    assert found == ["one/a.txt", "one/to/b.txt"]
    (tmp_path / "two/circle.txt").symlink_to("circle.txt")
    with pytest.raises(FileNotFoundError, match=r"circle.txt is a broken symbolic link \(to circle.txt\)"):
        find_files([str(tmp_path / "two")])


def test_a_pipe_is_refused_next_to_files_too(tmp_path):
    """Its size is 0, so its text would be left out."""
    write(tmp_path, "a.txt")
    os.mkfifo(tmp_path / "b.txt")
    for patterns in ([tmp_path], [tmp_path / "b.txt"], [tmp_path / "*.txt"]):
        with pytest.raises(UserError, match=r"b.txt is a pipe or a device, .*: save its text as a file"):
            find_files([*map(str, patterns)])


def test_a_file_to_come_may_be_part_of_a_corpus(tmp_path):
    (tmp_path / "c[1]").mkdir()
    parts = {
        ("a", "a/records"),
        ("a/*/*", "a/records"),
        ("[ab]/rec*", "a/records/train"),
        ("c[1]", "c[1]/records"),
    }
    others = {("a", "ab"), ("a/*.txt", "a/records"), ("c[1]", "c1/records")}  # c[1] is there, and no pattern
    for pattern, folder in parts | others:
        found = corpus.is_part(tmp_path / folder / "manifest.json", str(tmp_path / pattern))
        assert found == ((pattern, folder) in parts), (pattern, folder)
