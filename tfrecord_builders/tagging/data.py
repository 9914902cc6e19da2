"""Reads texts with tagged words: CoNLL's column files, and jsonl with tokens or with entities by offset."""

import collections
import dataclasses
import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from etils import epath

from tfrecord_builders.common import tables
from tfrecord_builders.common.labelling_tools import ENTITY_COLUMNS, entity_fields
from tfrecord_builders.common.rows import BadRow, LabelledRow, NestedJson, name_as_text
from tfrecord_builders.common.streams import unpacked_name
from tfrecord_builders.tagging.conllu import read_conllu
from xlnet_tf.errors import UserError

DOCUMENT_START = "-DOCSTART-"
_SPACES = re.compile("[ \t]+")


@dataclasses.dataclass(frozen=True)
class TaggedWords:
    """A sentence given as words."""

    id: str  # the data's own, or file and line
    document: str  # sentences of one document follow one another and have the same
    file: str  # where it stands; of a row with all its words, the row, too
    line: int  # in columns that of its first word, which the others follow; else 0
    words: list[str]  # none of them empty, any characters
    tags: list[str] | None  # as they stand there; None: not known
    columns: tuple[str, ...] = ()  # of a row with all its words, their names
    lines: tuple[int, ...] = ()  # of the words, if they do not simply follow one another
    spaces: tuple[bool, ...] = ()  # whether a space follows each word; (): after all

    @property
    def location(self) -> str:
        return self.location_of(0)

    def location_of(self, word: int) -> str:
        if not self.line:
            return self.file
        return f"{self.file}:{self.lines[word] if self.lines else self.line + word}"

    @property
    def types(self) -> set[str] | None:
        """The types of its entities; None: not known."""
        return None if self.tags is None else {tag.partition("-")[2] for tag in self.tags} - {""}


class Entity(NamedTuple):
    """The characters text[start:end] of an entity and its label."""

    start: int
    end: int
    label: str


@dataclasses.dataclass(frozen=True)
class AnnotatedText:
    """A text with annotated entities."""

    id: str
    document: str  # the same for texts of one document, which follow one another
    location: str
    text: str
    entities: list[Entity] | None  # longest first if they begin together; None: not known
    columns: tuple[str, ...] = ()  # names of those of its row

    def location_of(self, word: int) -> str:
        return self.location

    @property
    def types(self) -> set[str] | None:
        return None if self.entities is None else {entity.label for entity in self.entities}


class ReadColumns(NamedTuple):
    """The columns of words and tags: in column files by number, from 0 or with -1 the last; else by name."""

    word: int = 0
    tag: int = -1
    tokens: str = "tokens"
    tags: str = "tags"


def read_sentences(
    path: epath.PathLike, columns: ReadColumns | None = None, name: str = ""
) -> Iterator[TaggedWords | AnnotatedText]:
    """Reads a source in one of four forms.

    - `*.jsonl` or `*.json`, plain or .gz, Parquet, Arrow or a data set by name, with a list of tokens and one
      of tags in each row; "id" and "document" may be given.
    - the same with {"text": "...", "entities": [{"start": 0, "end": 5, "label": "LOC"}, ...]}, or entities
      as doccano and Label Studio write them, in the column "label" or "labels", or the one given for tags.
    - `*.conllu`, plain or .gz, is CoNLL-U (see conllu.py).
    - all else is columns: a word a line, a blank line after each sentence, `-DOCSTART-` before each document.

    Tags may be missing: no "tags" or "entities", or null, or no column of tags. `name` is the file's name in
    ids; "": its base name.
    """
    columns = columns or ReadColumns()
    if tables.is_columnar(path) or unpacked_name(tables.existing_file(path)).endswith((".jsonl", ".json")):
        for row in tables.read_table(path, tables.infer_format(path)):
            yield _from_row(row, columns.tokens, columns.tags, name)
    elif unpacked_name(tables.existing_file(path)).endswith(".conllu"):
        yield from _from_conllu(tables.existing_file(path), columns.tag, name)
    else:
        yield from _read_columns(tables.existing_file(path), columns.word, columns.tag, name)


def names_in_ids(paths: Sequence[epath.PathLike]) -> list[str]:
    """Returns the name of each file in ids: its base name, or more of its path if base names repeat."""
    parts = [os.path.normpath(path).split("/") for path in paths]
    namesakes = collections.defaultdict(set)
    for each in parts:
        namesakes[each[-1]].add(tuple(each))
    depths = {base: _distinguishing_depth(several) for base, several in namesakes.items()}
    return [name_as_text("/".join(each[-depths[each[-1]] :])) for each in parts]


def _distinguishing_depth(paths: Collection[tuple[str, ...]]) -> int:
    """Returns how many of their last parts distinguish the paths."""
    depth = 1
    while len({path[-depth:] for path in paths}) < len(paths):
        depth += 1
    return depth


def _read_columns(
    path: epath.Path, word_column: int, tag_column: int, name: str = ""
) -> Iterator[TaggedWords]:
    words: list[str] = []
    tags: list[str] = []
    document = first_line = 0
    columns: _Columns | None = None
    file = str(path)
    name = name or path.name

    def sentence() -> Iterator[TaggedWords]:
        if words:
            yield TaggedWords(
                id=f"{name}:{first_line}",
                document=f"{name}#{document}",
                file=file,
                line=first_line,
                words=list(words),
                tags=list(tags) if columns.tag is not None else None,
            )
        words.clear()
        tags.clear()

    for number, line in tables.decoded_lines(path, "utf-8"):
        line = line.rstrip("\r\n")
        if not line.strip(" \t") or line.startswith(DOCUMENT_START):
            yield from sentence()
            document += line.startswith(DOCUMENT_START)
            continue
        columns = columns or _Columns.of(line, word_column, tag_column, f"{file}:{number}")
        fields = columns.split(line, f"{file}:{number}")
        first_line = first_line if words else number
        words.append(fields[columns.word])
        if columns.tag is not None:
            tags.append(fields[columns.tag])
    yield from sentence()


def _from_conllu(path: epath.Path, tag_column: int, name: str) -> Iterator[TaggedWords]:
    name = name or path.name
    for sentence in read_conllu(path, tag_column):
        yield TaggedWords(
            id=sentence.id or f"{name}:{sentence.lines[0]}",
            document=f"{name}#{sentence.document}",
            file=str(path),
            line=sentence.lines[0],
            words=sentence.words,
            tags=sentence.known_tags,
            lines=tuple(sentence.lines),
            spaces=tuple(sentence.spaces),
        )


class _Columns(NamedTuple):
    """The columns of a file's lines, as its first line shows; between tabs, words may contain spaces."""

    count: int
    word: int
    tag: int | None
    tabs: bool

    @classmethod
    def of(cls, line: str, word_column: int, tag_column: int, location: str) -> "_Columns":
        tabs = "\t" in line.strip(" \t")
        count = len(_fields(line, tabs))
        if not -count <= word_column < count:
            raise UserError(
                f"{location}: {count} columns, but --word_column is {word_column}: columns are counted from "
                "0, or from the last one with -1"
            )
        word = word_column % count
        tag = tag_column % count if -count <= tag_column < count else None
        return cls(count, word, None if tag == word else tag, tabs)

    def split(self, line: str, location: str) -> list[str]:
        fields = _fields(line, self.tabs)
        if len(fields) != self.count:
            raise UserError(
                f"{location}: {len(fields)} columns, but {self.count} in the lines before: {line!r}. "
                f"Expected as many in all lines, with {'tabs' if self.tabs else 'spaces'} between them"
            )
        if not fields[self.word]:
            raise UserError(f"{location}: no word in column {self.word}: {line!r}")
        return fields


def _fields(line: str, tabs: bool) -> list[str]:
    """Splits at tabs, or at runs of spaces; other white characters, such as a hard space, may be words."""
    return [field.strip(" ") for field in line.split("\t")] if tabs else _SPACES.split(line.strip(" \t"))


def _from_row(
    row: LabelledRow, tokens_column: str, tags_column: str, name: str
) -> TaggedWords | AnnotatedText:
    name = f"{name or row.file.rpartition('/')[2]}:{row.line}"
    sentence_id, document = row.text_or("id", name), row.text_or("document", name)
    if tokens_column in row:
        words = _texts(row, tokens_column)
        tags = _texts(row, tags_column) if _given(row, tags_column) else None
        if any(isinstance(word, NestedJson) for word in words):
            raise UserError(f"{row.location}: tokens are {', '.join(words)[:80]}, expected a list of texts")
        if "" in words:
            raise UserError(f"{row.location}: token {words.index('')} is empty: leave it out, and its tag")
        if tags is not None and len(tags) != len(words):
            raise UserError(
                f"{row.location}: {len(words)} tokens but {len(tags)} tags: expected one for each"
            )
        return TaggedWords(sentence_id, document, row.location, 0, words, tags, tuple(row.values))
    if "text" in row:
        text = row.text("text")
        entities = None
        if column := _entity_column(row, tags_column):
            entities = sorted(_entities(row, column, text), key=lambda entity: (entity.start, -entity.end))
        return AnnotatedText(sentence_id, document, row.location, text, entities, tuple(row.values))
    raise UserError(
        f'{row.location}: found {", ".join(row.values) or "nothing"}, expected "{tokens_column}" (and '
        f'"{tags_column}"; name them with --tokens_column and --tags_column), or '
        '"text" (and "entities")'
    )


def _entity_column(row: LabelledRow, tags_column: str) -> str:
    """Returns the column of a text's entities; "" if it has none."""
    if _given(row, ENTITY_COLUMNS[0]):
        return ENTITY_COLUMNS[0]
    names = (tags_column, *ENTITY_COLUMNS[1:])
    return next((name for name in names if name in row and isinstance(row[name], list)), "")


def _given(row: LabelledRow, column: str) -> bool:
    return column in row and row[column] != ""  # null is the empty text


def _texts(row: LabelledRow, column: str) -> list[str]:
    if not isinstance(row[column], list):
        raise UserError(f'{row.location}: "{column}" is {row[column]!r}, expected a list of texts')
    return row[column]


def _entities(row: LabelledRow, column: str, text: str) -> Iterator[Entity]:
    for number, value in enumerate(_texts(row, column)):
        location = f"{row.location}: entity {number}"
        try:
            entity = Entity(**entity_fields(json.loads(value), text))
        except BadRow as error:
            raise UserError(f"{location} {error}") from None
        except (TypeError, ValueError):
            raise UserError(f"{location} is {value}, expected exactly start, end and label") from None
        if type(entity.start) is not int or type(entity.end) is not int:
            raise UserError(
                f"{location}: start is {entity.start!r}, end {entity.end!r}, expected whole numbers"
            )
        if not 0 <= entity.start < entity.end <= len(text):
            raise UserError(
                f"{location} is characters {entity.start} to {entity.end} of a text of {len(text)}: expected "
                "0 <= start < end <= its length; end is the character after the last"
            )
        if not isinstance(entity.label, str) or not entity.label.strip():
            raise UserError(f"{location}: label is {entity.label!r}, expected a name")
        yield entity
