"""Reads queries and their candidate passages from tables: a user's own, and WikiQA in both forms."""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

from etils import epath

from tfrecord_builders.common.rows import HIDDEN_LABELS, whole_number, zero_or_one
from tfrecord_builders.common.streams import compression_of
from tfrecord_builders.common.tables import Skip, TableFormat, infer_format, is_columnar, read_table
from xlnet_tf.errors import UserError

UNKNOWN = -1
MAX_RELEVANCE = 100
_BEIR_HEADER = ["query-id", "corpus-id", "score"]
# How many fields a line of judgements has -> which are the passage's id and the relevance (0: it is 1).
_JUDGEMENT_FIELDS = {4: (2, 3), 3: (1, 2), 2: (1, 0)}
_GRADE = re.compile(r"-?\d*\.?\d+|-?\d+\.")


@dataclasses.dataclass(frozen=True)
class CandidatePassage:
    """A candidate for a query."""

    id: str  # unique among the query's candidates
    text: str
    relevance: int  # 0 for irrelevant, larger for more relevant; -1 if it is not known


@dataclasses.dataclass
class Query:
    """A query and its candidates."""

    id: str  # unique in the split
    text: str
    location: str  # file and line
    passages: list[CandidatePassage] = dataclasses.field(default_factory=list)  # in the input's order
    missing: list[CandidatePassage] = dataclasses.field(default_factory=list)  # relevant, but no candidates


@dataclasses.dataclass(frozen=True)
class PairColumns:
    """The column names of a table; queries and passages without an id are numbered."""

    query: str = "query"
    passage: str = "passage"
    relevance: str = "relevance"
    query_id: str = "query_id"
    passage_id: str = "passage_id"


WIKIQA_COLUMNS = PairColumns("Question", "Sentence", "Label", "QuestionID", "SentenceID")


def read_pairs(path: epath.PathLike, columns: PairColumns, skip: Skip, labelled: bool = True) -> list[Query]:
    """Reads a csv, tsv or jsonl table with a query and a passage a line; a query's lines may be apart.

    `skip` is called with reason and location of skipped rows. Unless `labelled`, relevance may be missing.
    """
    pairs = _Pairs(skip)
    for row in read_table(path, infer_format(path)):
        text = row.text(columns.query)
        query_id = row.text_or(columns.query_id, "") or None
        passage_id = row.text_or(columns.passage_id, "") or None
        grade = UNKNOWN
        if labelled or row.text_or(columns.relevance, "") not in HIDDEN_LABELS:
            grade = parse_relevance(row.text(columns.relevance), row.location)
        pairs.add(query_id, text, passage_id, row.text(columns.passage), grade, row.location)
    return pairs.queries()


def read_wikiqa(path: epath.PathLike, skip: Skip, labelled: bool = True) -> list[Query]:
    """Reads WikiQA: a .tsv with named columns, or a .txt with its .ref line by line, plain or .gz."""
    path = epath.Path(path)
    name = path.stem if compression_of(path) else path.name
    if not name.endswith(".txt"):
        return read_pairs(path, WIKIQA_COLUMNS, skip, labelled)
    pairs = _Pairs(skip)
    rows = read_table(path, TableFormat("tsv", header=False))
    judgements = read_judgements(path.parent / f"{name.removesuffix('.txt')}.ref")
    for row in rows:
        if (judgement := next(judgements, None)) is None:
            raise UserError(f"{row.location} has no line in the .ref file: the two belong to each other")
        query_id, passage_id, grade, location = judgement
        if whole_number(row.text("2")) != grade:
            raise UserError(
                f"{row.location}: the label is {row.text('2')}, but {grade} in {location}: the files do not "
                "belong to each other"
            )
        pairs.add(query_id, row.text("0"), passage_id, row.text("1"), grade, row.location)
    if (judgement := next(judgements, None)) is not None:
        raise UserError(f"{judgement[-1]} has no line in {path}: the two belong to each other")
    return pairs.queries()


def read_judgements(path: epath.PathLike) -> Iterator[tuple[str, str, int, str]]:
    """Reads relevance judgements: TREC's (query id, unused, passage id, relevance), BEIR's or MS MARCO's.

    BEIR's have no unused column, but a header, which may be left out; MS MARCO's pairs are of relevance 1.
    All lines of a file have the same number of fields. Yields (query id, passage id, relevance, location).
    TREC's negative grades (spam) become 0.
    """
    count = 0
    for fields, location in read_words(path):
        if not count and [name.lower() for name in fields] == _BEIR_HEADER:
            continue
        count = count or len(fields)
        passage, grade = _JUDGEMENT_FIELDS.get(count, (0, 0))
        text = fields[grade] if grade < len(fields) == count and grade else "1"
        if len(fields) != count or not passage or not _GRADE.fullmatch(text):
            raise UserError(
                f"{location}: {' '.join(fields)!r}, expected 'query-id 0 passage-id relevance', BEIR's "
                "'query-id corpus-id score' or MS MARCO's 'query-id passage-id', with spaces or tabs between "
                "them, and the same in all lines"
            )
        relevance = 0 if text.startswith("-") else parse_relevance(text, location)
        yield fields[0], fields[passage], relevance, location


def read_words(path: epath.PathLike) -> Iterator[tuple[list[str], str]]:
    """Yields (fields, location) of each line, split at tabs or, in a file without tabs, at spaces."""
    table = infer_format(path) if is_columnar(path) else TableFormat("tsv", header=False)
    for row in read_table(path, table):
        fields = [row.text(column) for column in row.values]
        fields = fields[0].split() if len(fields) == 1 else fields
        if fields:
            yield fields, row.location


def parse_relevance(text: str, location: str) -> int:
    grade = whole_number(text)
    if grade is None:
        grade = zero_or_one(text)  # False and True
    if grade is None or grade > MAX_RELEVANCE:
        raise UserError(
            f"{location}: the relevance is {text!r}, expected a whole number: 0 for irrelevant, 1 to "
            f"{MAX_RELEVANCE} for relevant"
        )
    return grade


class _Pairs:
    """Groups pairs by query."""

    def __init__(self, skip: Skip):
        self._skip = skip
        self._queries: dict[tuple[str | None, str], _Gathered] = {}

    def add(
        self,
        query_id: str | None,
        query: str,
        passage_id: str | None,
        passage: str,
        grade: int,
        location: str,
    ) -> None:
        """Adds a pair; without ids, a query is identified by its text, and a passage is always new."""
        if not query.strip() or not passage.strip():
            self._skip(f"empty {'passage' if query.strip() else 'query'}", location)
            return
        key = (query_id, "" if query_id else query)
        known = self._queries.setdefault(key, _Gathered(query_id, query, location))
        if known.text != query:
            raise UserError(
                f"{location}: query {query_id} is {query!r}, but {known.text!r} in {known.location}: give "
                "another id to another query"
            )
        if passage_id is not None:
            if passage_id in known.passage_ids:
                self._skip("passage given twice for a query", location)
                return
            known.passage_ids.add(passage_id)
        known.passages.append((passage_id, passage, grade))

    def queries(self) -> list[Query]:
        gathered = list(self._queries.values())
        return [
            Query(name, query.text, query.location, query.candidates())
            for name, query in zip(_with_numbers([query.id for query in gathered]), gathered)
        ]


@dataclasses.dataclass
class _Gathered:
    """A query while its passages are read; missing ids are None."""

    id: str | None
    text: str
    location: str
    passage_ids: set[str] = dataclasses.field(default_factory=set)  # those that are given
    passages: list[tuple[str | None, str, int]] = dataclasses.field(default_factory=list)

    def candidates(self) -> list[CandidatePassage]:
        names = _with_numbers([passage_id for passage_id, _, _ in self.passages])
        return [CandidatePassage(name, *rest) for name, (_, *rest) in zip(names, self.passages)]


def _with_numbers(ids: Sequence[str | None]) -> list[str]:
    """Replaces missing ids by unused numbers: their positions, from 1, if possible."""
    taken, names = set(ids), []
    for position, name in enumerate(ids, 1):
        if name is None:
            name = next(str(number) for number in itertools.count(position) if str(number) not in taken)
            taken.add(name)
        names.append(name)
    return names
