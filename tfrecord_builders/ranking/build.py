"""Builds examples of ranking: passages, answers or replies for a query, K candidates in one record."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from tfrecord_builders.common.example_builder import ExampleOptions
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
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.records.layout import Column
from xlnet_tf.text.marks import DroppedMarks
from xlnet_tf.text.packing import PAD_SEGMENT, pack
from xlnet_tf.text.special_tokens import PAD_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

TASK = "ranking"
FORMATS = ("table", "wikiqa", "trec")
NO_CANDIDATE = -1  # relevance of the slots that a query's candidates leave empty

_NUM_SPECIAL = 3  # SEP, SEP and CLS
_FILE = "file of the {} split; format=trec: of its queries (id, tab, text)"


@dataclasses.dataclass(frozen=True)
class RankingOptions(ExampleOptions):
    """What to build; each field is a flag."""

    format: str = option(
        f"table (a query, a passage and its relevance a row: {SOURCES}), wikiqa (.tsv, or .txt with .ref "
        "next to it) or trec",
        "table",
        choices=FORMATS,
    )
    train: str = option(_FILE.format("train"), "")
    dev: str = option(_FILE.format("dev"), "")
    test: str = option(_FILE.format("test"), "")
    query_column: str = option("column of the query", PairColumns.query)
    passage_column: str = option("column of the passage", PairColumns.passage)
    relevance_column: str = option("column of the relevance", PairColumns.relevance)
    query_id_column: str = option("column of the query_id, if any", PairColumns.query_id)
    passage_id_column: str = option("column of the passage_id, if any", PairColumns.passage_id)
    collection: str = option("trec: file of all passages (id, tab, text)", "")
    run: str = option(
        "trec: candidates, best first: a TREC run, or query id, passage id and more with tabs", ""
    )
    qrels: str = option("trec: judgements (query id, 0, passage id, relevance)", "")
    depth: int = option("trec: candidates of a query to take from the run; 0: all", 0, least=0)
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
        """Raises UserError for options that are out of range or do not fit each other."""
        super().check()
        if self.format == "trec" and not (self.collection and self.run):
            raise UserError("format=trec needs --collection and --run")
        if self.format == "trec" and self.train and not self.qrels:
            raise UserError("to train, format=trec needs --qrels: what is relevant")
        if self.format != "trec" and (self.collection or self.run or self.qrels or self.depth):
            raise UserError(
                f"--collection, --run, --qrels and --depth are for format=trec, not {self.format}"
            )
        self.check_room("max_query_len", _NUM_SPECIAL, "a passage")

    def files(self, split: str) -> list[str]:
        """Returns the files of a split: queries, collection, run and qrels; "" for those not given."""
        names = (self.collection, self.run, self.qrels)
        return [getattr(self, split), *(name.replace("{split}", split) for name in names)]

    def read(self, split: str, skip: Skip) -> list[Query]:
        """Returns the queries of a split; calls skip with reason and location of what is left out."""
        path, *parts = self.files(split)
        labelled = split != "test"
        if self.format == "wikiqa":
            return read_wikiqa(path, skip, labelled)
        if self.format == "table":
            return read_pairs(path, self.columns_of(PairColumns), skip, labelled)
        return read_trec(path, *parts, self.depth, skip)


def build_ranking(options: RankingOptions, progress: bool = False) -> dict[str, ExampleSet]:
    """Builds the splits that are asked for.

    Args:
        options: what to build.
        progress: whether to draw progress bars on stderr.

    Returns:
        split -> its set of examples. Columns: `relevance` int32 [K], -1 where it is not known and in slots
        without a candidate. Each line of examples.jsonl has query_id, query, passages (id and text of the
        candidates) and missing (the relevance of relevant passages that are not candidates).

    Raises:
        FileNotFoundError: an input is not there.
        UserError: options or data are not as they should be; the message has file and line.
    """
    options.check()
    tokenizer = options.load_tokenizer()
    for file in filter(None, (file for split in options.splits for file in options.files(split))):
        check_exists(file)  # found out before a split is written, which may take long
    marks = DroppedMarks(options.cleaning)
    names = ("candidates", "relevant_from", "max_query_len", "num_passes", "seed")
    arguments = {
        "columns": [Column("relevance", "int32", options.candidates)],
        "settings": {name: getattr(options, name) for name in names},
        "sequences": options.candidates,
    }
    return {
        split: _build_split(split, writer, options, tokenizer, marks, progress)
        for split, writer in options.writers(
            TASK, tokenizer, dict.fromkeys(options.splits, arguments)
        ).items()
    }


def _build_split(
    split: str,
    writer: ExampleWriter,
    options: RankingOptions,
    tokenizer: XLNetTokenizer,
    marks: DroppedMarks,
    progress: bool,
) -> ExampleSet:
    skipped: list[tuple[str, str]] = []
    queries = options.read(split, lambda reason, location: skipped.append((reason, location)))
    for query in queries:
        marks.add(query.text, *(passage.text for passage in query.passages))
    marks.warn()
    judged = all(p.relevance != UNKNOWN for query in queries for p in query.passages)
    writer.example_set.settings["judged"] = judged
    with writer:
        for reason, location in skipped:
            writer.skip(reason, location)
        if split == "train":
            rng = np.random.default_rng(options.seed)
            group = functools.partial(training_groups, options=options, rng=rng, skip=writer.skip)
        else:
            group = functools.partial(all_candidates, size=options.candidates)
        with ProgressBar(queries, split, unit=" queries", disable=not progress) as bar:
            _write(writer, bar, group, tokenizer, options)
        writer.check_any(getattr(options, split))
    return writer.example_set


def _write(
    writer: ExampleWriter,
    queries: Collection[Query],
    group: Callable[[Query], Iterator[list[CandidatePassage]]],
    tokenizer: XLNetTokenizer,
    options: RankingOptions,
) -> None:
    lengths: list[int] = []
    for query in queries:
        for passages in group(query):
            columns, pieces = candidate_sequences(query.text, passages, tokenizer, options)
            room = options.seq_len - _NUM_SPECIAL - min(pieces[0], options.max_query_len)
            writer.count("queries cut", int(pieces[0] > options.max_query_len))
            writer.count("passages cut", int(np.sum(pieces[1:] > room)))
            writer.count("candidates", len(passages))
            lengths += list(pieces[0] + pieces[1:])
            writer.write(
                columns,
                {
                    "query_id": query.id,
                    "query": query.text,
                    "passages": [{"id": passage.id, "text": passage.text} for passage in passages],
                    "missing": [passage.relevance for passage in query.missing],
                },
            )
    writer.count("queries", len(queries))
    writer.count_lengths("pieces of a query and a passage", lengths or [0])


def training_groups(
    query: Query, options: RankingOptions, rng: np.random.Generator, skip: Skip
) -> Iterator[list[CandidatePassage]]:
    """Yields the candidates of each of a query's training records.

    Each relevant passage gets a record, `num_passes` times over, with others drawn from the less relevant;
    their order is drawn, too. Relevant passages that are not candidates count if their text is known.

    Args:
        query: with its judged passages.
        options: candidates, relevant_from and num_passes count.
        rng: draws.
        skip: called with reason and location if the query gives nothing to learn from.
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


def all_candidates(query: Query, size: int) -> Iterator[list[CandidatePassage]]:
    """Yields a query's candidates in their order, `size` at a time."""
    for start in range(0, len(query.passages), size):
        yield query.passages[start : start + size]


def candidate_sequences(
    query: str, passages: Sequence[CandidatePassage], tokenizer: XLNetTokenizer, options: RankingOptions
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Packs the candidates of a record, T = seq_len tokens each, at most K = `options.candidates` of them.

    The query keeps its first `max_query_len` pieces; the passage is cut at its end to what room is left.

    Returns:
        The columns input_ids and segment_ids [K * T], all padding in slots without a candidate, and relevance
        [K]; the pieces of the query and of each passage before anything was cut, [1 + passages].
    """
    ids, lengths = tokenizer.encode_batch([query, *(passage.text for passage in passages)])
    query_ids, *passage_ids = np.split(ids, np.cumsum(lengths)[:-1])
    kept = query_ids[: options.max_query_len]
    room = options.seq_len - _NUM_SPECIAL - len(kept)
    input_ids = np.full((options.candidates, options.seq_len), PAD_ID, np.int32)
    segment_ids = np.full((options.candidates, options.seq_len), PAD_SEGMENT, np.uint8)
    relevance = np.full(options.candidates, NO_CANDIDATE, np.int32)
    for slot, (passage, text) in enumerate(zip(passages, passage_ids, strict=True)):
        input_ids[slot], segment_ids[slot] = pack(kept, text[:room], seq_len=options.seq_len)
        relevance[slot] = passage.relevance
    columns = {
        "input_ids": input_ids.reshape(-1),
        "segment_ids": segment_ids.reshape(-1),
        "relevance": relevance,
    }
    return columns, lengths
