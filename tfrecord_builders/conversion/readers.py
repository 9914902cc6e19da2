"""Reads other programs' records for the conversion: checked, with targets or what they are drawn from."""

from collections.abc import Iterator

import numpy as np

from tfrecord_builders.conversion import int64_records, model_garden_format, original_format
from tfrecord_builders.conversion.int64_records import ExternalFile, ExternalSet
from tfrecord_builders.conversion.options import ConversionOptions
from xlnet_tf.errors import UserError
from xlnet_tf.records import segments, spans
from xlnet_tf.text import special_tokens
from xlnet_tf.text.tokenizer import XLNetTokenizer


class OriginalReader:
    """Reads the original's records, which have targets, up to num_predict; `notes` are for the user."""

    functional_tokens = "ordered"  # `_local_perm` gives SEP and CLS a position in the order

    def __init__(self, options: ConversionOptions, source: ExternalSet, tokenizer: XLNetTokenizer):
        self.notes: list[str] = []
        self._source = source
        self._vocab_size = tokenizer.vocab_size
        lengths = dict.fromkeys(original_format.FEATURES.values(), source.seq_len)
        self._lengths = lengths | {"label": 1, "target": source.seq_len}
        num_predict = source.num_predict
        if num_predict is None and options.num_predict is None:
            num_predict = max(
                int(flags.sum(axis=-1).max()) for file in source.files for flags in self._targets(file)
            )
            self.notes.append(
                f"the records have any number of targets (num_predict was not set), at most {num_predict}: "
                f"each gets {num_predict} slots, and those left over stay empty (--permutation=online fills "
                "them all)"
            )
        elif options.num_predict is not None and num_predict not in (None, options.num_predict):
            raise UserError(
                f"num_predict is {options.num_predict}, but the records were made with {num_predict} "
                f"(fnp-{num_predict} in their names): leave --num_predict out"
            )
        self.num_predict = options.num_predict or num_predict

    def _targets(self, file: ExternalFile):
        """Yields bool [S, B, T]: the targets, without special tokens."""
        for columns in int64_records.read_steps(file, self._lengths):
            special = np.isin(columns["input"], (special_tokens.SEP_ID, special_tokens.CLS_ID))
            yield (columns["is_masked"] == 1) & ~special

    def read(self, file: ExternalFile) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yields (step, the columns of `_segments` and is_target of [S, B, T])."""
        source, names = self._source, original_format.FEATURES
        chunks = int64_records.read_steps(file, self._lengths)
        for step, columns, checked in _segments(file, source, names, chunks, self._vocab_size):
            is_masked = columns[names["is_masked"]]
            flags = ((is_masked == 0) | (is_masked == 1)).all(axis=-1)
            int64_records.check(file, step, flags, "has flags (is_masked) other than 0 and 1")
            if source.num_predict is not None:
                picked = is_masked.sum(axis=-1) == source.num_predict
                int64_records.check(
                    file, step, picked, f"has not {source.num_predict} tokens picked in is_masked"
                )
            is_target = (is_masked == 1) & ~checked["special"]
            fits = is_target.sum(axis=-1) <= self.num_predict
            int64_records.check(
                file, step, fits, f"has more than {self.num_predict} targets: give a larger --num_predict"
            )
            yield step, checked | {"is_target": is_target}

    def draw_targets(self, rng, columns, backward: bool) -> np.ndarray:
        """Returns bool [S, T], the targets of one row's records."""
        del rng, backward
        return columns["is_target"]


class ModelGardenReader:
    """Reads Model Garden's records: targets are drawn, by this library's rules."""

    functional_tokens = "context"  # its reader lets everything see SEP and CLS

    def __init__(self, options: ConversionOptions, source: ExternalSet, tokenizer: XLNetTokenizer):
        self.notes: list[str] = []
        self._source, self._options = source, options
        self._word_starts = tokenizer.word_starts
        self._is_border = model_garden_format.border_pieces(tokenizer.pieces)
        self.num_predict = options.num_predict or round(source.seq_len * source.beta / source.alpha)
        spans.split_num_predict(self.num_predict, source.seq_len, source.reuse_len)

    def read(self, file: ExternalFile) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        names, source = model_garden_format.FEATURES, self._source
        lengths = {
            names["ids"]: source.seq_len,
            names["segment_ids"]: source.seq_len,
            names["label"]: 1,
            model_garden_format.BORDERS: None,
        }
        chunks = int64_records.read_steps(file, lengths, self._note_rest)
        for step, columns, checked in _segments(file, source, names, chunks, len(self._word_starts)):
            agree = model_garden_format.borders_agree(
                columns[model_garden_format.BORDERS], checked["input_ids"], self._is_border
            )
            int64_records.check(
                file, step, agree, "has boundary_indices elsewhere than the tokenizer: it is another one"
            )
            yield step, checked

    def _note_rest(self, file: ExternalFile, count: int) -> None:
        note = f"{file.path.name}: its last {count} records are not a complete step and are left out"
        if note not in self.notes:
            self.notes.append(note)

    def draw_targets(self, rng, columns, backward: bool) -> np.ndarray:
        ids, special, reuse_len = columns["input_ids"], columns["special"], self._source.reuse_len
        word_start = self._word_starts[ids]
        if backward:
            word_start = np.append(np.ones((len(ids), 1), bool), word_start[:, :-1], axis=1)
        word_start |= special
        word_start[:, 1:] |= special[:, :-1]
        word_start[:, [0, reuse_len]] = True
        drawn_from = segments.Segments(
            ids, columns["segment_ids"], columns["next_sentence"], special, word_start, np.zeros_like(ids)
        )
        return spans.sample_segment_targets(
            rng,
            drawn_from,
            reuse_len,
            self.num_predict,
            alpha=self._source.alpha,
            beta=self._source.beta,
            max_words=spans.MASK["max_words"],
            span_mode=self._options.span_mode,
        )


def _segments(file: ExternalFile, source: ExternalSet, names, chunks, vocab_size: int):
    """Checks what the formats share; `names` are theirs of ids, segment_ids and label.

    Yields the number of the first step, the columns, and ids, segment_ids, next_sentence, special and a_len.
    """
    step = 0
    for columns in chunks:
        ids, segment_ids, label = (columns[names[name]] for name in ("ids", "segment_ids", "label"))
        special, a_len = int64_records.check_segments(
            file, step, ids, segment_ids, source.reuse_len, vocab_size
        )
        label = label[..., 0]
        int64_records.check(file, step, (label == 0) | (label == 1), "has a label other than 0 and 1")
        checked = {
            "input_ids": ids,
            "segment_ids": segment_ids,
            "next_sentence": label,
            "special": special,
            "a_len": a_len,
        }
        yield step, columns, checked
        step += len(ids)
