"""The invariants of pretraining records, for every record and every shard.

Two things need no check, as ranks cannot express the contrary: the query stream at a target sees neither its
own token nor a later target's (r[j] < r[i] excludes both), and nothing that it sees has seen the target,
through any number of layers (visibility follows the ranks, which only go up). The checks are that the ranks
form a legal factorization order of the set's objective, and that the first part does not see the second.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tfrecord_builders.inspection.recovered_text import (
    UNKNOWN,
    RecoveredText,
    a_lengths,
    chunks,
    contiguous,
    halves,
    source_positions,
)
from xlnet_tf.records import segments, spans
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.spans import target_flags
from xlnet_tf.records.spec import stream_name
from xlnet_tf.text.special_tokens import CLS_ID, EOD_ID, MASK_ID, PAD_ID, SEP_ID

# What no text of a segment contains.
_NEVER = (PAD_ID, MASK_ID)  # SEP and CLS have their positions; <s> and </s> are the tokenizer's affair


@dataclasses.dataclass(frozen=True)
class Broken:
    """An invariant and the records of a shard, by number, that break it."""

    invariant: str
    records: np.ndarray
    explain: Callable[[int], tuple[str, str]]  # what was found in a record, and what was expected


def broken_records(
    manifest: Manifest, shard: Shard, columns: Mapping[str, np.ndarray], text: RecoveredText
) -> Iterator[Broken]:
    """Yields every invariant that does not hold in a shard with columns name -> [S, ...].

    Large shards are checked in parts, so a name may be repeated. `text` is the corpus shard's, recovered from
    this shard or that of another pass.
    """
    for broken in _broken_scalars(manifest, shard, columns, text):
        if len(broken.records):
            yield broken
    for direction, part in halves(shard):
        for chunk in chunks(part):
            some = _Some(
                manifest,
                {name: values[chunk] for name, values in columns.items()},
                chunk.start,
                part,
                direction,
            )
            for check in (_broken_layout, _broken_targets, _broken_order):
                yield from (broken for broken in check(some) if len(broken.records))
            yield from (broken for broken in _broken_text(some, text) if len(broken.records))


class _Some:
    """Some records of one direction of a shard, with derived values."""

    def __init__(
        self, manifest: Manifest, columns: Mapping[str, np.ndarray], first: int, part: range, direction: int
    ):
        self.manifest = manifest
        self.columns = columns
        self.first = first
        self.direction = direction
        self.number = np.arange(len(columns["input_ids"])) + first - part.start  # in its direction
        self.ids = columns["input_ids"].astype(np.int32)
        self.rank = columns["permutation_rank"].astype(np.int32)
        self.is_target = target_flags(columns)
        self.special = (self.ids == SEP_ID) | (self.ids == CLS_ID)

    def rows(
        self, invariant: str, wrong: np.ndarray, found: Callable[[int], Any], expected: Callable[[int], Any]
    ) -> Broken:
        """Makes an invariant of whole records; wrong: bool [S]; found and expected describe one of them."""
        first = self.first
        return Broken(
            invariant,
            np.flatnonzero(wrong) + first,
            lambda record: (str(found(record - first)), str(expected(record - first))),
        )

    def cells(self, invariant: str, wrong: np.ndarray, found: np.ndarray, expected) -> Broken:
        """Makes an invariant of positions; wrong: bool [S, T]; found: [S, T]; expected: the same or words."""

        def explain(row):
            position = int(np.argmax(wrong[row]))
            what = expected if isinstance(expected, str) else expected[row, position]
            count = int(wrong[row].sum())
            more = f" (and {count - 1} more positions)" if count > 1 else ""
            return f"{found[row, position]} at position {position}{more}", str(what)

        return self.rows(
            invariant, wrong.any(axis=1), lambda row: explain(row)[0], lambda row: explain(row)[1]
        )


def _broken_scalars(
    manifest: Manifest, shard: Shard, columns: Mapping[str, np.ndarray], text: RecoveredText
) -> Iterator[Broken]:
    """Checks the columns that identify a record; they follow from the manifest and the text."""
    identity = manifest.identity(shard)
    for direction, part in halves(shard):
        begin = np.arange(len(part)) * manifest.reuse_len
        expected = {name: values[part.start : part.stop] for name, values in identity.items()}
        expected["direction"] = np.full(len(part), direction)
        segment = expected["segment"]
        if manifest.use_eod:
            starts = text.document_starts[direction]
            document = starts[np.searchsorted(starts, begin, side="right") - 1]
            expected["document_offset"] = np.minimum(begin - document, segment * manifest.reuse_len)
        for name, values in expected.items():
            shown = functools.partial(stream_name, direction=direction) if name == "stream" else str
            found = columns[name][part]
            yield _scalar(name, found, part.start, found != values, values, shown)
        if not manifest.use_eod:
            # Where documents end is not in the records: the offset grows with the segments or begins anew.
            offset = columns["document_offset"][part].astype(np.int64)
            grown = np.append(0, offset[:-1] + manifest.reuse_len)
            begun = (segment > 0) & (offset >= 0) & (offset < manifest.reuse_len)
            first = (segment == 0) & (offset == 0)
            wrong = ~(first | begun | ((segment > 0) & (offset == grown)))
            yield _scalar("document_offset", offset, part.start, wrong, grown * (segment > 0))
    label = columns["next_sentence"]
    yield _scalar("next_sentence", label, 0, (label != 0) & (label != 1), np.zeros(len(label), int))


def _scalar(
    name: str,
    found: np.ndarray,
    first: int,
    wrong: np.ndarray,
    expected: np.ndarray,
    shown: Callable[[int], str] = str,
) -> Broken:
    return Broken(
        name,
        np.flatnonzero(wrong) + first,
        lambda record: (shown(int(found[record - first])), shown(int(expected[record - first]))),
    )


def _broken_layout(some: _Some) -> Iterator[Broken]:
    """Checks that segments are [reused | A SEP B SEP CLS] and made of the vocabulary's pieces."""
    manifest, ids = some.manifest, some.ids
    reuse_len, seq_len = manifest.reuse_len, manifest.seq_len
    vocab_size = manifest.tokenizer["vocab_size"]
    yield some.cells("id in the vocabulary", (ids < 0) | (ids >= vocab_size), ids, f"0 to {vocab_size - 1}")
    never = np.isin(ids, _NEVER if manifest.use_eod else (*_NEVER, EOD_ID))
    yield some.cells("symbols that no text has", never, ids, "a piece of text")
    separator = reuse_len + a_lengths(ids, reuse_len)
    column = np.arange(seq_len)
    expected = (column == separator[:, None]) | (column >= seq_len - 2)
    wrong = (
        (some.special != expected).any(axis=1)
        | (ids[:, -2] != SEP_ID)
        | (ids[:, -1] != CLS_ID)
        | (separator <= reuse_len)
        | (separator >= seq_len - 3)
    )
    yield some.rows(
        "segment layout",
        wrong,
        lambda row: (
            f"SEP at {np.flatnonzero(ids[row] == SEP_ID).tolist()[:9]}, "
            f"CLS at {np.flatnonzero(ids[row] == CLS_ID).tolist()[:9]}"
        ),
        lambda row: (
            f"[{reuse_len} reused | A SEP B SEP CLS]: SEP between {reuse_len + 1} and {seq_len - 4}, "
            f"SEP at {seq_len - 2}, CLS at {seq_len - 1}"
        ),
    )
    found = some.columns["segment_ids"].astype(np.int32)
    expected = (column > separator[:, None]) + (column == seq_len - 1).astype(np.int32)
    yield some.cells("segment_ids", found != expected, found, expected)


def _broken_targets(some: _Some) -> Iterator[Broken]:
    manifest, positions = some.manifest, some.columns["target_positions"].astype(np.int32)
    filled = positions >= 0
    wrong = (
        ((filled[:, 1:] & filled[:, :-1]) & (np.diff(positions, axis=1) <= 0)).any(axis=1)
        | (filled[:, 1:] & ~filled[:, :-1]).any(axis=1)
        | (positions >= manifest.seq_len).any(axis=1)
        | (positions < -1).any(axis=1)
    )
    yield some.rows(
        "target_positions",
        wrong,
        lambda row: " ".join(map(str, positions[row])),
        lambda row: f"ascending positions below {manifest.seq_len}, then -1 in the empty slots",
    )
    yield some.cells(
        "special tokens as targets",
        some.is_target & some.special,
        some.ids,
        "a piece of text (SEP is 4, CLS is 3)",
    )
    counts = np.stack(
        [
            some.is_target[:, : manifest.reuse_len].sum(axis=1),
            some.is_target[:, manifest.reuse_len :].sum(axis=1),
        ],
        axis=1,
    )
    if manifest.objective == "autoregressive":
        wanted = (manifest.reuse_len, manifest.num_predict - manifest.reuse_len)
    else:
        wanted = spans.split_num_predict(manifest.num_predict, manifest.seq_len, manifest.reuse_len)
    # The original picks up to three special tokens, all in the second part, and drops them.
    fewest = np.array([wanted[0], wanted[1] - segments.NUM_SPECIAL * manifest.compat])
    if not manifest.has_fixed_targets:
        return
    yield some.rows(
        "number of targets",
        ((counts < fewest) | (counts > wanted)).any(axis=1),
        lambda row: f"{counts[row, 0]} in the first part and {counts[row, 1]} in the second",
        lambda row: (
            f"{wanted[0]} and {wanted[1]}" + (f" (compat: {fewest[1]} at least)" if manifest.compat else "")
        ),
    )


def _broken_order(some: _Some) -> Iterator[Broken]:
    manifest, rank = some.manifest, some.rank
    if manifest.objective == "autoregressive":
        natural = np.broadcast_to(np.arange(manifest.seq_len), rank.shape)
        yield some.cells("order: the natural one", rank != natural, rank, natural)
        return
    ordered = manifest.functional_tokens == "ordered"
    hidden = some.is_target | some.special if ordered else some.is_target
    if manifest.objective == "denoising":
        yield some.cells("order: targets share the last rank", rank != hidden, rank, hidden.astype(int))
        return
    for part, base in (
        (slice(0, manifest.reuse_len), 0),
        (slice(manifest.reuse_len, None), manifest.reuse_len + 1),
    ):
        yield from _broken_part(some, hidden, part, base)
    last, first = rank[:, : manifest.reuse_len].max(axis=1), rank[:, manifest.reuse_len :].min(axis=1)
    yield some.rows(
        "order: the first part does not see the second",
        last >= first,
        lambda row: f"ranks up to {last[row]} in the first part, from {first[row]} in the second",
        lambda row: "all ranks of the first below those of the second",
    )


def _broken_part(some: _Some, hidden: np.ndarray, part: slice, base: int) -> Iterator[Broken]:
    """Checks the order in one part of a segment; ranks are base for context, else base + 1 + their order."""
    perm_size, rank = some.manifest.perm_size, some.rank
    context = np.zeros_like(hidden)
    context[:, part] = ~hidden[:, part] & (rank[:, part] != base)
    yield some.cells("order: context comes first and together", context, rank, f"rank {base}")
    order = rank[:, part] - base - 1
    block = np.arange(order.shape[1]) // perm_size * perm_size  # where each position's block begins
    outside = np.zeros_like(hidden)
    outside[:, part] = hidden[:, part] & ((order < block) | (order >= block + perm_size))
    yield some.cells(
        f"order: blocks of {perm_size} keep their order", outside, rank, "a rank inside of its block"
    )
    # All blocks share one permutation: the same index at the same offset, another at another offset.
    blocks = (len(order), -1, perm_size)
    inner, is_hidden = (order - block).reshape(blocks), hidden[:, part].reshape(blocks)
    least = np.where(is_hidden, inner, perm_size).min(axis=1)  # [S, perm_size]
    most = np.where(is_hidden, inner, -1).max(axis=1)
    free = most < 0
    distinct = np.sort(np.where(free, -1 - np.arange(perm_size), least), axis=1)
    shared = (np.diff(distinct, axis=1) == 0).any(axis=1)
    wrong = (shared | (~free & (least != most)).any(axis=1)) & ~outside.any(axis=1)
    yield some.rows(
        "order: a permutation",
        wrong,
        lambda row: "ranks " + " ".join(map(str, rank[row, part][hidden[row, part]])),
        lambda row: (
            f"distinct ranks; where perm_size ({perm_size}) makes several blocks, the same order in each"
        ),
    )


def _broken_text(some: _Some, text: RecoveredText) -> Iterator[Broken]:
    """Checks that records continue the previous ones, and that B comes from where its label says."""
    manifest, ids = some.manifest, some.ids
    b_follows = contiguous(manifest, some.columns)
    where = source_positions(ids, b_follows, some.number, manifest.reuse_len)
    expected = text.expected(where, some.direction)
    wrong = (where >= 0) & (expected != ids) & ((expected != UNKNOWN) | (where >= len(text.tokens)))
    yield some.cells("text that continues from record to record", wrong, ids, expected)

    begin = some.number * manifest.reuse_len
    a_len = a_lengths(ids, manifest.reuse_len)
    b_begin = manifest.reuse_len + a_len + 1
    length = manifest.seq_len - 2 - b_begin
    elsewhere = np.flatnonzero(~b_follows & (length > 0))
    if not len(elsewhere):
        return
    column = np.minimum(b_begin[elsewhere, None] + np.arange(length[elsewhere].max()), manifest.seq_len - 1)
    before, after = (begin - length)[elsewhere], (begin + manifest.seq_len)[elsewhere]
    if manifest.compat:  # B comes from anywhere
        before, after = np.full_like(before, len(text.tokens)), np.zeros_like(after)
    contained = text.contains(
        np.take_along_axis(ids[elsewhere], column, axis=1), length[elsewhere], before, after, some.direction
    )
    lost = np.zeros(len(ids), bool)
    lost[elsewhere[~contained]] = True
    yield some.rows(
        "B that next_sentence says is from elsewhere",
        lost,
        lambda row: f"a B of {length[row]} tokens that the corpus shard has nowhere outside of the segment",
        lambda row: "tokens of the corpus shard's text, or next_sentence 1",
    )
