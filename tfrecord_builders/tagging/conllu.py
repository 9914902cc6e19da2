"""Reads CoNLL-U, the format of Universal Dependencies: ten columns with tabs, a word a line."""

import dataclasses
from collections.abc import Iterator

from etils import epath

from tfrecord_builders.common.tables import decoded_lines
from xlnet_tf.errors import UserError

COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
_ID, _FORM, _UPOS, _MISC = (COLUMNS.index(name) for name in ("ID", "FORM", "UPOS", "MISC"))
_NO_SPACE = "SpaceAfter=No"
_SENTENCE, _DOCUMENT = "sent_id", "newdoc"


def read_conllu(path: epath.Path, tag_column: int) -> Iterator["ConlluSentence"]:
    """Yields the sentences of a file; tag_column -1, which would be MISC, is UPOS.

    Words are those with a whole number: of a range such as 3-4 (French "du"), the words 3 and 4 count,
    without a space between them if they spell the range's form. Empty nodes such as 5.1 are left out.
    """
    if not -len(COLUMNS) <= tag_column < len(COLUMNS):
        raise UserError(f"tag_column is {tag_column}, expected 0 to {len(COLUMNS) - 1}: {', '.join(COLUMNS)}")
    tag_column = _UPOS if tag_column == -1 else tag_column % len(COLUMNS)
    sentence = ConlluSentence()
    for number, line in decoded_lines(path):
        line = line.rstrip("\r\n")
        if line.startswith("#"):
            key, _, value = line[1:].partition("=")
            sentence.document += key.split()[:1] == [_DOCUMENT]
            sentence.id = value.strip() if key.strip() == _SENTENCE else sentence.id
        elif line.strip():
            sentence.add(line, f"{path}:{number}", number, tag_column)
        else:
            if sentence.words:
                yield sentence
            sentence = ConlluSentence(document=sentence.document)
    if sentence.words:
        yield sentence


@dataclasses.dataclass
class ConlluSentence:
    """A sentence: of each word its tag, whether a space follows, and its line; documents are numbered."""

    document: int = 0
    id: str = ""
    words: list[str] = dataclasses.field(default_factory=list)
    tags: list[str] = dataclasses.field(default_factory=list)
    spaces: list[bool] = dataclasses.field(default_factory=list)
    lines: list[int] = dataclasses.field(default_factory=list)
    # Last word of the open range, its form, whether a space follows.
    range_: tuple[int, str, bool] | None = None
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
        self.spaces.append(has_space)
        self.lines.append(number)
        if self.range_ and int(begin) >= self.range_[0]:
            _, form, self.spaces[-1] = self.range_
            joined = "".join(self.words[self.first :]) == form
            self.spaces[self.first : -1] = [not joined] * (len(self.words) - self.first - 1)
            self.range_ = None

    @property
    def known_tags(self) -> list[str] | None:
        """The tags; None if all are _."""
        return None if set(self.tags) == {"_"} else self.tags
