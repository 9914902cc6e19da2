"""Reads queries and candidates from files of TREC, MS MARCO and BEIR: queries, collection, run and qrels."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
from etils import epath

from tfrecord_builders.common.streams import unpacked_name
from tfrecord_builders.common.tables import Skip, TableFormat, infer_format, is_columnar, read_table
from tfrecord_builders.ranking.queries import UNKNOWN, CandidatePassage, Query, read_judgements, read_words
from xlnet_tf.errors import UserError

# Place of the passage's id among the fields of a line of a run, by their number; see read_run.
_PASSAGE_FIELD = {2: 1, 3: 1, 4: 1, 6: 2}


def read_trec(
    queries: str, collection: str, run: str, qrels: str, depth: int, skip: Skip, seed: int = 0
) -> list[Query]:
    """Reads the queries of a split with their candidates; one without a judgement is irrelevant.

    Args:
        queries, collection: files of id and text, with a tab between them, or BEIR's and MTEB's rows with
            _id, text and, in a collection, title. Only those of BEIR's queries count that have a judgement:
            its file has the queries of all splits.
        run: file of the candidates of each query, best first; empty: those judged, and `depth` others of
            the collection, drawn at random.
        qrels: file of query id, unused, passage id, relevance; empty if nothing is known.
        depth: how many candidates of a query are taken from the run; 0: all.
    """
    texts = _read_texts(queries, "query", skip)
    grades = _read_qrels(qrels, texts, skip) if qrels else {}
    if qrels and _has_named_columns(queries):
        texts = {query_id: text for query_id, text in texts.items() if query_id in grades}
    if run:
        candidates_of = read_run(run, texts, depth, skip)
    else:
        candidates_of = _drawn(texts, grades, collection, depth, seed)
    needed = {name for candidates in candidates_of.values() for name in candidates}
    needed.update(name for judged in grades.values() for name, grade in judged.items() if grade)
    passages = _read_texts(collection, "passage", skip, needed)

    found = []
    for query_id, (text, location) in texts.items():
        query = Query(query_id, text, location)
        judged = grades.get(query_id, {})
        for name, candidate_place in candidates_of.get(query_id, {}).items():
            if name in passages:
                grade = judged.get(name, 0) if qrels else UNKNOWN
                query.passages.append(CandidatePassage(name, passages[name][0], grade))
            else:
                skip("candidate that is not in the collection", candidate_place)
        candidates = {passage.id for passage in query.passages}
        for name, grade in judged.items():
            if grade and name not in candidates:
                query.missing.append(CandidatePassage(name, passages.get(name, ("", ""))[0], grade))
        if query.passages:
            found.append(query)
        else:
            skip("query without candidates", location)
    return found


def read_run(
    path: epath.PathLike, queries: Mapping[str, object], depth: int, skip: Skip
) -> dict[str, dict[str, str]]:
    """Reads candidates of known queries: query id -> {passage id: location}, in the order of the file.

    Lines are `query-id Q0 passage-id rank score tag` (TREC), `query-id passage-id query passage` with tabs
    (MS MARCO's top1000), or `query-id passage-id [rank]`; `depth` of a query are kept, 0: all.
    """
    candidates: dict[str, dict[str, str]] = defaultdict(dict)
    for fields, location in read_words(path):
        if len(fields) not in _PASSAGE_FIELD:
            raise UserError(
                f"{location}: {len(fields)} fields, expected 6 (query-id Q0 passage-id rank score tag), or 2 "
                "to 4 that begin with query-id and passage-id"
            )
        query_id, name = fields[0], fields[_PASSAGE_FIELD[len(fields)]]
        if query_id not in queries:
            skip("candidate of a query that is not in the split", location)
        elif name in candidates[query_id]:
            skip("passage given twice for a query", location)
        elif not depth or len(candidates[query_id]) < depth:
            candidates[query_id][name] = location
    return candidates


def _drawn(
    texts: Mapping[str, tuple[str, str]],
    grades: Mapping[str, Mapping[str, int]],
    collection: str,
    depth: int,
    seed: int,
) -> dict[str, dict[str, str]]:
    """Returns candidates without a run: what was judged, and passages drawn from the collection."""
    names = list(_read_texts(collection, "passage", lambda *_: None, only_ids=True))
    rng, found = np.random.default_rng(seed), {}
    for query_id, (_, location) in texts.items():
        judged = grades.get(query_id, {})
        others = [names[i] for i in rng.choice(len(names), min(depth, len(names)), replace=False)]
        found[query_id] = dict.fromkeys([*judged, *others], location)
    return found


def _has_named_columns(path: epath.PathLike) -> bool:
    """Returns whether a file has rows with columns by name, as BEIR's and MTEB's, and no lines with tabs."""
    return is_columnar(path) or unpacked_name(epath.Path(path)).endswith((".jsonl", ".json"))


def _rows(path: epath.PathLike, kind: str) -> Iterator[tuple[str, str, str]]:
    """Yields id, text and location of each query or passage."""
    if _has_named_columns(path):
        for row in read_table(path, infer_format(path)):
            parts = [row.text_or("title", ""), row.text("text")]
            name = row.text("_id" if "_id" in row or "id" not in row else "id")
            yield name, " ".join(filter(None, map(str.strip, parts))), row.location
        return
    for row in read_table(path, TableFormat("tsv", header=False)):
        if len(row.values) != 2:
            raise UserError(f"{row.location}: {len(row.values)} columns, expected an id, a tab and a {kind}")
        yield row.text("0"), row.text("1"), row.location


def _read_qrels(path: str, queries: Mapping[str, object], skip: Skip) -> dict[str, dict[str, int]]:
    """Returns query id -> {passage id: relevance}."""
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    for query_id, name, grade, location in read_judgements(path):
        if query_id not in queries:
            skip("judgement for a query that is not in the split", location)
        else:
            grades[query_id][name] = grade
    return grades


def _read_texts(
    path: epath.PathLike, kind: str, skip: Skip, needed: set[str] | None = None, only_ids: bool = False
) -> dict[str, tuple[str, str]]:
    """Returns id -> (text, location) of a file, or of the `needed` ids; `only_ids` leaves the texts empty."""
    texts: dict[str, tuple[str, str]] = {}
    for name, text, location in _rows(path, kind):
        if needed is not None and name not in needed:
            continue
        if not text.strip():
            skip(f"empty {kind}", location)
        elif name in texts:
            raise UserError(f"{location}: id {name!r} again, after {texts[name][1]}: ids must be unique")
        else:
            texts[name] = ("" if only_ids else text, location)
    return texts
