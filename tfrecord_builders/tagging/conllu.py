"""Reads CoNLL-U, the format of Universal Dependencies: ten columns with tabs, a word a line."""

import dataclasses
from collections.abc import Iterator

from etils import epath

from tfrecord_builders.common.tables import decoded_lines
from tfrecord_builders.tagging.data import TaggedWords
from xlnet_tf.errors import UserError

COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
_ID, _FORM, _UPOS, _MISC = (COLUMNS.index(name) for name in ("ID", "FORM", "UPOS", "MISC"))
_NO_SPACE = "SpaceAfter=No"
_SENTENCE, _DOCUMENT = "sent_id", "newdoc"


def read_conllu(path: epath.Path, tag_column: int, name: str) -> Iterator[TaggedWords]:
    """Yields the sentences of a file.

    Words are those with a whole number: of a range such as 3-4 (French "du"), the words 3 and 4 count,
    without a space between them if they spell the range's form. Empty nodes such as 5.1 are left out.

    Args:
        tag_column: number of the tags' column; -1, which would be MISC: UPOS. A sentence whose tags are all _
            has none.
        name: the file's name in ids.
    """
    tag_column = _UPOS if tag_column == -1 else tag_column % len(COLUMNS)
    sentence, document = _Sentence(), 0
    for number, line in decoded_lines(path):
        line = line.rstrip("\r\n")
        if line.startswith("#"):
            key, _, value = line[1:].partition("=")
            document += key.split()[:1] == [_DOCUMENT]
            sentence.id = value.strip() if key.strip() == _SENTENCE else sentence.id
        elif line.strip():
            sentence.add(line, f"{path}:{number}", number, tag_column)
        else:
            yield from sentence.rows(str(path), name, document)
            sentence = _Sentence()
    yield from sentence.rows(str(path), name, document)


@dataclasses.dataclass
class _Sentence:
    """A sentence while its lines are read; `ends` has for each word whether a space follows."""

    id: str = ""
    words: list[str] = dataclasses.field(default_factory=list)
    tags: list[str] = dataclasses.field(default_factory=list)
    ends: list[bool] = dataclasses.field(default_factory=list)
    lines: list[int] = dataclasses.field(default_factory=list)
    range_: tuple[int, str, bool] | None = (
        None  # last word of the open range, its form, whether a space follows
    )
    first: int = 0  # index of the open range's first word

    def add(self, line: str, location: str, number: int, tag_column: int) -> None:
        fields = line.split("\t")
        if len(fields) != len(COLUMNS):
            raise UserError(
                f"{location}: {len(fields)} columns, expected CoNLL-U's {len(COLUMNS)} with tabs between "
                f"them ({', '.join(COLUMNS)}); other columns are read from files that do not end in .conllu"
            )
        begin, mark, end = fields[_ID].partition("-")
        has_space = _NO_SPACE not in fields[_MISC].split("|")
        if mark and begin.isdecimal() and end.isdecimal():
            self.range_, self.first = (int(end), fields[_FORM], has_space), len(self.words)
            return
        if "." in begin:
            return
        if mark or not begin.isdecimal():
            raise UserError(
                f"{location}: ID is {fields[_ID]!r}, expected CoNLL-U's number of a word, as 3, 3-4 or 5.1"
            )
        self.words.append(fields[_FORM])
        self.tags.append(fields[tag_column])
        self.ends.append(has_space)
        self.lines.append(number)
        if self.range_ and int(begin) >= self.range_[0]:
            _, form, self.ends[-1] = self.range_
            joined = "".join(self.words[self.first :]) == form
            self.ends[self.first : -1] = [not joined] * (len(self.words) - self.first - 1)
            self.range_ = None

    def rows(self, file: str, name: str, document: int) -> Iterator[TaggedWords]:
        """Yields the sentence, if it has words."""
        if self.words:
            yield TaggedWords(
                id=self.id or f"{name}:{self.lines[0]}",
                document=f"{name}#{document}",
                file=file,
                line=self.lines[0],
                words=self.words,
                tags=None if set(self.tags) == {"_"} else self.tags,
                lines=tuple(self.lines),
                spaces=tuple(self.ends),
            )
