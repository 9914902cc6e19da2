"""Writes a row of another program's records as a shard."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from typing_extensions import Self

from tfrecord_builders.conversion.int64_records import ExternalFile
from xlnet_tf.records import ranks
from xlnet_tf.records.manifest import Manifest, Shard, shard_name
from xlnet_tf.records.shards import ShardWriter
from xlnet_tf.records.spans import MAX_RUN, run_histogram, target_positions
from xlnet_tf.records.spec import BACKWARD, FORWARD, MAX_SLICES, stream_id
from xlnet_tf.text.special_tokens import EOD_ID, UNK_ID

# Statistics of a shard about its text, which records do not contain.
_UNKNOWN_TEXT = ("sentences", "characters", "bytes", "short_documents", "short_document_tokens")


class RowWriter:
    """Writes a row of an external file, or a part of it, as a shard: a context that ends the shard.

    `stream_segments` are those of the longest stream, None: the row is one stream; `word_starts`, bool [V],
    are the pieces that start a word.
    """

    def __init__(
        self,
        manifest: Manifest,
        file: ExternalFile,
        number: int,
        slice_index: int,
        stream_segments: int | None,
        word_starts: np.ndarray,
    ):
        self._manifest = manifest
        self._backward = bool(file.backward[number])
        self._slice_index = slice_index
        self._stream_segments = stream_segments
        self._name = shard_name(manifest.split, 0, slice_index)
        self._writer = ShardWriter(manifest.folder / self._name, manifest.spec)
        self._files = contextlib.ExitStack()
        self._rng = np.random.Generator(
            np.random.Philox(np.random.SeedSequence([manifest.seed, slice_index]))
        )
        self._document = 0  # where the document begins, in the row's tokens
        self._word_starts = word_starts
        self._text = dict.fromkeys(("documents", "tokens", "unknown", "word_starts"), 0)
        self.has_eod = False
        self._runs, self._targets = np.zeros(MAX_RUN, np.int64), 0
        self._text_end = 0  # of the row's tokens that are in some record

    def __enter__(self) -> Self:
        self._files.enter_context(self._writer)
        return self

    def __exit__(self, *error) -> None:
        self._files.__exit__(*error)

    def close(self) -> None:
        self._files.close()

    def write(self, reader, columns: Mapping[str, np.ndarray]) -> None:
        """Appends records: the reader's columns, [S, ...]."""
        manifest, count = self._manifest, len(columns["input_ids"])
        is_target = reader.draw_targets(self._rng, columns, self._backward)
        rank = ranks.sample_ranks(
            self._rng,
            is_target,
            columns["special"],
            objective=manifest.objective,
            reuse_len=manifest.reuse_len,
            perm_size=manifest.perm_size,
            functional_tokens=manifest.functional_tokens,
        )
        number = self._writer.records + np.arange(count)
        stream, segment = np.divmod(number, self._stream_segments or MAX_SLICES)
        self._writer.write(
            {
                "input_ids": columns["input_ids"],
                "segment_ids": columns["segment_ids"],
                "permutation_rank": rank,
                "target_positions": target_positions(is_target, manifest.num_predict),
                "direction": np.full(count, BACKWARD if self._backward else FORWARD),
                "next_sentence": columns["next_sentence"],
                "stream": stream + stream_id(0, self._slice_index),
                "segment": segment,
                "document_offset": self._offsets(columns["input_ids"], number, segment),
            }
        )
        self._runs += run_histogram(is_target)
        self._targets += int(is_target.sum())
        # A may reach beyond that of the records after it.
        ends = (number + 1) * manifest.reuse_len + columns["a_len"]
        self._text_end = max(self._text_end, int(ends.max()))

    def _offsets(self, ids: np.ndarray, number: np.ndarray, segment: np.ndarray) -> np.ndarray:
        """Returns int [S], tokens of the document before each segment, within its stream; by <eod>."""
        reuse_len = self._manifest.reuse_len
        text = ids[:, :reuse_len].reshape(-1)
        self.has_eod |= bool((text == EOD_ID).any())
        if not self._backward:  # the backward rows' text is that of the forward rows
            self._text["tokens"] += len(text)
            self._text["unknown"] += int((text == UNK_ID).sum())
            self._text["word_starts"] += int(self._word_starts[text].sum())
            self._text["documents"] += int((text == EOD_ID).sum())
        # Read backward, a document begins with its <eod>; read forward, after that of the one before.
        begins = np.flatnonzero(text == EOD_ID) + (not self._backward) + number[0] * reuse_len
        begins = np.append(self._document, begins)
        begin = number * reuse_len
        document = begins[np.searchsorted(begins, begin, side="right") - 1]
        self._document = begins[-1]
        return np.minimum(begin - document, segment * reuse_len)

    def shard(self) -> Shard:
        count = self._writer.records
        written = self._text_end
        # Where the row ended there is not known but for less than a segment; B may be from its rest.
        total = written + self._manifest.seq_len
        tokens = [_account(FORWARD, total, 0 if self._backward else written)]
        if self._backward:
            tokens.append(_account(BACKWARD, total, written))
        text = dict.fromkeys(_UNKNOWN_TEXT, 0) | {"document_lengths": {}} | self._text
        text["documents_in"] = text["documents"]
        return Shard(
            file=self._name,
            pass_index=0,
            slice_index=self._slice_index,
            forward_segments=0 if self._backward else count,
            backward_segments=count if self._backward else 0,
            bytes=self._writer.num_bytes,
            sha256=self._writer.sha256,
            text_sha256="",
            statistics={
                "text": text,
                "tokens": tokens,
                "targets": self._targets,
                "target_runs": self._runs.tolist(),
            },
        )


def _account(direction: int, total: int, written: int) -> dict[str, Any]:
    """Accounts for a row's tokens in a direction."""
    reason = "not_in_any_record" if written else "read_in_the_other_direction_only"
    dropped = {reason: total - written}
    return {"pass": 0, "direction": direction, "in": total, "written": written, "dropped": dropped}
