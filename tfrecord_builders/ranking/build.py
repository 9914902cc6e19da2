"""Builds examples of ranking: passages, answers or replies for a query, K candidates in one record."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from tfrecord_builders.common import example_builder
from tfrecord_builders.common.example_builder import Example, ExampleOptions, Split, build_sets, encoded
from tfrecord_builders.common.tables import SOURCES, Skip, check_exists
from tfrecord_builders.ranking.queries import (
    UNKNOWN,
    CandidatePassage,
    PairColumns,
    Query,
    read_pairs,
    read_wikiqa,
)
from tfrecord_builders.ranking.trec import read_trec
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.records.layout import Column
from xlnet_tf.text.marks import DroppedMarks
from xlnet_tf.text.packing import PAD_SEGMENT, pack
from xlnet_tf.text.special_tokens import PAD_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

TASK = "ranking"
FORMATS = ("table", "wikiqa", "trec", "beir")
NO_CANDIDATE = -1  # relevance of the slots that a query's candidates leave empty

_NUM_SPECIAL = 3  # SEP, SEP and CLS
_Group = tuple[Query, Sequence[CandidatePassage]]  # what becomes a record
_FILE = "file of the {} split; format=trec: of its queries (id, tab, text); format=beir: the folder"


@dataclasses.dataclass(frozen=True)
class RankingOptions(ExampleOptions):
    """What to build; each field is a flag."""

    format: str = option(
        f"table (a query, a passage and its relevance a row: {SOURCES}), wikiqa (.tsv, or .txt with .ref "
        "next to it), trec or beir (a folder with corpus.jsonl, queries.jsonl and qrels/, of BEIR and MTEB)",
        "table",
        choices=FORMATS,
        group="data",
    )
    train: str = option(_FILE.format("train"), "", group="data")
    dev: str = option(_FILE.format("dev"), "", group="data")
    test: str = option(_FILE.format("test"), "", group="data")
    query_column: str = option("column of the query", PairColumns.query, group="data")
    passage_column: str = option("column of the passage", PairColumns.passage, group="data")
    relevance_column: str = option("column of the relevance", PairColumns.relevance, group="data")
    query_id_column: str = option("column of the query_id, if any", PairColumns.query_id)
    passage_id_column: str = option("column of the passage_id, if any", PairColumns.passage_id)
    collection: str = option("trec: file of all passages (id, tab, text)", "", group="data")
    run: str = option(
        "trec, beir: candidates, best first: a TREC run, or query id, passage id and more with tabs. Without "
        "it, candidates are the judged passages and --depth others, drawn at random",
        "",
        group="data",
    )
    qrels: str = option(
        "trec: judgements (query id, 0, passage id, relevance; or BEIR's three columns, MS MARCO's two)",
        "",
        group="data",
    )
    depth: int = option("trec, beir: candidates of a query to take from the run; 0: all", 0, least=0)
    candidates: int = option("candidates K of a record", 8, least=2)
    relevant_from: int = option(
        "smallest relevance that counts as relevant (TREC Deep Learning's passages: 2)", 1, least=1
    )
    num_passes: int = option(
        "training records for each relevant passage, each with others drawn for it", 1, least=1
    )
    max_query_len: int = option("most tokens of a query", 32, least=1)
    seed: int = option("random seed for the candidates drawn for training", 0, least=0)

    def check(self) -> None:
        super().check()
        if self.format == "trec" and not self.collection:
            raise UserError("format=trec needs --collection and --run (or --depth, to draw passages)")
        if self.format == "trec" and self.train and not self.qrels:
            raise UserError("to train, format=trec needs --qrels: what is relevant")
        if self.format in ("trec", "beir") and not (self.run or self.depth):
            raise UserError(
                f"format={self.format} has no candidates: give --run, the file of a search engine, or "
                "--depth=50 for passages drawn at random, which are easier to rank"
            )
        if self.format != "trec" and (self.collection or self.qrels):
            raise UserError(f"--collection and --qrels are for format=trec, not {self.format}")
        if self.format not in ("trec", "beir") and (self.run or self.depth):
            raise UserError(f"--run and --depth are for format=trec and beir, not {self.format}")
        self.check_room("max_query_len", _NUM_SPECIAL, "a passage")

    def files(self, split: str) -> list[str]:
        """Returns the files of a split: queries, collection, run and qrels; "" for those not given."""
        names = (getattr(self, split), self.collection, self.run, self.qrels)
        if self.format == "beir":
            folder = names[0].rstrip("/")
            names = (
                f"{folder}/queries.jsonl",
                f"{folder}/corpus.jsonl",
                self.run,
                f"{folder}/qrels/{split}.tsv",
            )
        return [names[0], *(name.replace("{split}", split) for name in names[1:])]

    def read(self, split: str, skip: Skip) -> list[Query]:
        """Returns the queries of a split; calls skip with reason and location of skipped data."""
        path, *parts = self.files(split)
        labelled = split != "test"
        if self.format == "wikiqa":
            return read_wikiqa(path, skip, labelled)
        if self.format == "table":
            return read_pairs(path, self.columns_of(PairColumns), skip, labelled)
        return read_trec(path, *parts, self.depth, skip, self.seed)


def build_ranking(options: RankingOptions, progress: bool = False) -> dict[str, ExampleSet]:
    """Builds the splits: `relevance` int32 [K], -1 if unknown or in slots without a candidate.

    A line of examples.jsonl has query_id, query, passages (id and text of the candidates) and missing (the
    relevance of relevant passages that are not candidates).
    """
    options.check()
    tokenizer = options.load_tokenizer()
    for file in filter(None, (file for split in options.splits for file in options.files(split))):
        check_exists(file)  # found out before a split is written, which may take long
    marks = DroppedMarks(options.cleaning)
    names = ("candidates", "relevant_from", "max_query_len", "num_passes", "seed")
    settings = {name: getattr(options, name) for name in names}

    def read(name: str) -> Split[Query]:
        skipped: list[tuple[str, str]] = []
        source = name if getattr(options, name) else "train"
        queries = options.read(source, lambda *left_out: skipped.append(left_out))
        if options.dev_fraction and name in ("train", "dev"):
            parts = example_builder.hold_out(
                queries, lambda query: query.text, options.dev_fraction, options.train
            )
            queries = parts[name == "dev"]
        for query in queries:
            marks.add(query.text, *(passage.text for passage in query.passages))
        marks.warn()
        judged = all(passage.relevance != UNKNOWN for query in queries for passage in query.passages)
        rng = np.random.default_rng(options.seed) if name == "train" else None
        examples = _Examples(options, tokenizer, rng, getattr(options, source))
        return Split(
            queries,
            len(queries),
            [Column("relevance", "int32", options.candidates)],
            {**settings, "judged": judged},
            examples.of,
            sequences=options.candidates,
            skipped=skipped,
        )

    return build_sets(TASK, options, tokenizer, options.built, read, "queries", progress)


@dataclasses.dataclass(frozen=True)
class _Examples:
    """Converts the queries of a split to examples; `rng` draws candidates, or all are taken without it."""

    options: RankingOptions
    tokenizer: XLNetTokenizer
    rng: np.random.Generator | None
    source: str

    def of(self, queries: Collection[Query], writer: ExampleWriter) -> Iterator[Example]:
        lengths: list[int] = []
        candidates, seq_len = self.options.candidates, self.options.seq_len
        for (query, passages), (query_ids, *ids) in encoded(
            self._groups(queries, writer), _texts, self.tokenizer
        ):
            kept = query_ids[: self.options.max_query_len]
            room = seq_len - _NUM_SPECIAL - len(kept)
            writer.count("queries cut", int(len(query_ids) > len(kept)))
            writer.count("passages cut", sum(len(passage) > room for passage in ids))
            writer.count("candidates", len(passages))
            lengths += [len(query_ids) + len(passage) for passage in ids]
            relevance = np.full(candidates, NO_CANDIDATE, np.int32)
            relevance[: len(passages)] = [passage.relevance for passage in passages]
            columns = candidate_sequences(kept, ids, candidates, seq_len)
            yield (
                {**columns, "relevance": relevance},
                {
                    "query_id": query.id,
                    "query": query.text,
                    "passages": [{"id": passage.id, "text": passage.text} for passage in passages],
                    "missing": [passage.relevance for passage in query.missing],
                },
            )
        writer.count("queries", len(queries))
        writer.count_lengths("pieces of a query and a passage", lengths or [0])
        writer.check_any(self.source)

    def _groups(self, queries: Iterable[Query], writer: ExampleWriter) -> Iterator[_Group]:
        """Yields each query with the candidates of each of its records."""
        for query in queries:
            if self.rng is None:
                size, passages = self.options.candidates, query.passages
                groups = (passages[start : start + size] for start in range(0, len(passages), size))
            else:
                groups = training_groups(query, self.options, self.rng, writer.skip)
            yield from ((query, group) for group in groups)


def _texts(group: _Group) -> list[str]:
    query, passages = group
    return [query.text, *(passage.text for passage in passages)]


def training_groups(
    query: Query, options: RankingOptions, rng: np.random.Generator, skip: Skip
) -> Iterator[list[CandidatePassage]]:
    """Yields the candidates of each training record: a relevant passage with others drawn from less relevant.

    Relevant passages that are not candidates count if their text is known.
    """
    known = query.passages + [passage for passage in query.missing if passage.text]
    relevant = [passage for passage in known if passage.relevance >= options.relevant_from]
    if not relevant:
        skip("query without a relevant passage", query.location)
    elif min(passage.relevance for passage in known) == max(passage.relevance for passage in known):
        skip("query whose passages are all alike relevant", query.location)
    for _ in range(options.num_passes):
        for passage in relevant:
            others = [other for other in known if other.relevance < passage.relevance]
            if others:
                count = min(options.candidates - 1, len(others))
                drawn = [passage, *(others[i] for i in rng.choice(len(others), count, replace=False))]
                yield [drawn[i] for i in rng.permutation(len(drawn))]


def candidate_sequences(
    query: np.ndarray, passages: Sequence[np.ndarray], candidates: int, seq_len: int
) -> dict[str, np.ndarray]:
    """Packs K candidates of a record; each passage is cut at its end to the room that the query leaves.

    Query and passages are piece ids. Returns the columns input_ids and segment_ids [K * T], T = seq_len, all
    padding in slots without a candidate.
    """
    room = seq_len - _NUM_SPECIAL - len(query)
    input_ids = np.full((candidates, seq_len), PAD_ID, np.int32)
    segment_ids = np.full((candidates, seq_len), PAD_SEGMENT, np.uint8)
    for slot, passage in enumerate(passages):
        input_ids[slot], segment_ids[slot] = pack(query, passage[:room], seq_len=seq_len)
    return {"input_ids": input_ids.reshape(-1), "segment_ids": segment_ids.reshape(-1)}
