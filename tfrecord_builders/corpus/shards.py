"""Slices of a corpus: planned in one process, read in any."""

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tfrecord_builders.common.streams import StreamCache
from tfrecord_builders.corpus.rows import CorpusRow
from tfrecord_builders.corpus.sources import Part, Source
from xlnet_tf.errors import UserError

_SAMPLED_SOURCES = 32
_SAMPLED_BYTES = 1 << 18


@dataclasses.dataclass(frozen=True)
class Selection:
    """The chosen documents of a corpus shard."""

    keep_mask: bytes  # a bit for each document, np.packbits; the first may continue from the previous shard
    documents: int
    continues: bool
    duplicates: int  # how many begin here and are left out as duplicates of earlier ones
    other_set: int  # how many begin here and are left out as they belong to another set


@dataclasses.dataclass(frozen=True)
class CorpusShard:
    """Consecutive parts of a corpus."""

    index: int
    parts: tuple[Part, ...]
    source_bytes: int  # stored bytes of files that were passed to make it, for progress
    continues: bool = False  # whether the previous shard ends inside of a document
    selection: Selection | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of uncompressed text, including documents that are not chosen."""
        return sum(part.num_bytes for part in self.parts)

    def without_text(self) -> "CorpusShard":
        """Returns a reference to the text: small, but compressed files will be unpacked again."""
        return dataclasses.replace(self, parts=tuple(part.without_text() for part in self.parts))


@dataclasses.dataclass(frozen=True)
class Lines:
    """The text of a corpus shard, line by line."""

    lines: list[str]  # stripped; "" stands for the end of a document, never twice in a row
    text_sha256: str  # hex digest of the text, its document borders and the selection
    num_bytes: int
    documents: int  # how many begin in the shard, including those not chosen, but without empty ones
    empty_documents: int
    continues: bool
    takes_rest: bool  # whether the document that the first line continues is chosen, too
    nul_bytes: dict[str, int]  # file's name -> NUL bytes in its text, where there are any

    def documents_text(self) -> list[bytes]:
        """Returns each chosen document, its lines joined by line ends, in UTF-8."""
        text = "\n".join(self.lines).rstrip("\n").encode()
        return text.split(b"\n\n") if text else []


def plan_shards(sources: Iterable[Source], shard_bytes: int) -> Iterator[CorpusShard]:
    """Yields the shards of a corpus, split at document borders; plain files are read only around those.

    A shard takes at least `shard_bytes` of uncompressed text and ends at the next document border. A document
    that continues for another `shard_bytes` is split at a line's end. A rest of less than half a shard joins
    the previous one. Compressed and plain files with the same text give the same shards.
    """
    waiting: CorpusShard | None = None
    parts: list[Part] = []
    num_bytes = source_bytes = 0  # of these parts
    index, continues = 0, False
    for source in sources:
        with source.open() as splitter:
            passed = 0
            while not splitter.at_end:
                parts.append(splitter.read_part(shard_bytes - num_bytes, shard_bytes))
                num_bytes += parts[-1].num_bytes
                source_bytes += splitter.source_position - passed
                passed = splitter.source_position
                if num_bytes >= shard_bytes:
                    if waiting is not None:
                        yield waiting
                    waiting = CorpusShard(index, tuple(parts), source_bytes, continues)
                    continues = not parts[-1].ends_document
                    index, parts, num_bytes, source_bytes = index + 1, [], 0, 0
            source_bytes += splitter.source_position - passed
    if waiting is not None and num_bytes < shard_bytes / 2:
        yield dataclasses.replace(
            waiting, parts=waiting.parts + tuple(parts), source_bytes=waiting.source_bytes + source_bytes
        )
    else:
        if waiting is not None:
            yield waiting
        yield CorpusShard(index, tuple(parts), source_bytes, continues)


def read_lines(corpus_shard: CorpusShard) -> Lines:
    """Reads the lines of a corpus shard; memory holds one part and the chosen documents.

    It is a UserError if the text does not fit the selection.
    """
    digest = hashlib.sha256()
    selection = corpus_shard.selection
    keep_mask = None
    if selection is not None:
        digest.update(selection.keep_mask)
        packed = np.frombuffer(selection.keep_mask, np.uint8)
        keep_mask = np.unpackbits(packed, count=selection.documents).astype(bool)
    lines: list[str] = []
    first, last = None, ""
    ended = empty = num_bytes = 0
    nul_bytes = collections.Counter()
    with StreamCache() as cache:
        for part in corpus_shard.parts:
            text = part.read(cache)
            digest.update(text.raw)
            empty += text.empty_documents
            nul_bytes.update(text.nul_bytes)
            num_bytes += text.num_bytes
            if first is None and text.lines:
                first = text.lines[0]
            before = [last, *text.lines]
            fresh = [line for line, previous in zip(text.lines, before) if line or previous]
            last = fresh[-1] if fresh else last
            if part.ends_document and last:
                fresh.append("")
                last = ""
            if keep_mask is not None:
                is_end = np.fromiter((not line for line in fresh), bool, len(fresh))
                document = ended + np.cumsum(is_end) - is_end
                if document.max(initial=-1) >= len(keep_mask):
                    raise _changed(corpus_shard)
                fresh = itertools.compress(fresh, keep_mask[document].tolist())
                ended += int(is_end.sum())
            lines += fresh
    if keep_mask is None:
        documents = lines.count("") + bool(last)
        continues = takes_rest = corpus_shard.continues and bool(first)
    else:
        documents = ended + bool(last)
        continues = selection.continues
        takes_rest = continues and bool(keep_mask[0])
        num_bytes = sum(len(line.encode()) + 1 for line in lines)
        if documents != len(keep_mask):
            raise _changed(corpus_shard)
    begun, sha256 = documents - continues, digest.hexdigest()
    return Lines(lines, sha256, num_bytes, begun, empty, continues, takes_rest, dict(nul_bytes))


def read_rows(corpus_shard: CorpusShard) -> Iterator[CorpusRow]:
    """Yields the rows of a corpus shard; a row that cannot be read has an error."""
    with StreamCache() as cache:
        for number, part in enumerate(corpus_shard.parts):
            for row in part.rows(cache):
                # What began in the shard before is too long, which is an error there.
                if number or not corpus_shard.continues or row.start != part.start:
                    yield row


def sample_lines(sources: Sequence[Source]) -> Iterator[str]:
    """Yields lines from all over a corpus: the first of some of its sources, at least 256 KiB of each."""
    for source in sources[:: -(-len(sources) // _SAMPLED_SOURCES) or 1]:
        for first in itertools.islice(plan_shards([source], _SAMPLED_BYTES), 1):
            yield from read_lines(first).lines


def _changed(corpus_shard: CorpusShard) -> UserError:
    return UserError(
        f"the text of corpus shard {corpus_shard.index} has changed since its documents were compared: do "
        "not change a corpus during a build; start again"
    )
