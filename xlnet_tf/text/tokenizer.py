"""XLNet's tokenizer: cleaning, SentencePiece, and the original's rule for commas after digits."""

import functools
import hashlib
import itertools
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging
from etils import epath
from typing_extensions import Self

from xlnet_tf import files, folders, hints
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums
from xlnet_tf.text import cleaning as cleaning_lib
from xlnet_tf.text import locating, ties, words
from xlnet_tf.text.batch_encoder import BatchEncoder
from xlnet_tf.text.cleaning import (
    DEFAULT_CLEANING,
    TOKENIZER_CONFIG_FILE,
    CleaningConfig,
    clean_text,
    read_cleaning,
)
from xlnet_tf.text.commas import CommaRule
from xlnet_tf.text.inputs import check_text, text_list
from xlnet_tf.text.packing import pack, truncated
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID, check_special_symbols
from xlnet_tf.text.tokenizer_json import TOKENIZER_JSON_FILE, write_tokenizer_json
from xlnet_tf.text.vocabulary import TOKENIZER_FILE, UNDERLINE, Vocabulary, check_word_marks

_PADDINGS = {True: "longest", False: "do_not_pad", "do_not_pad": "do_not_pad", "longest": "longest",
             "max_length": "max_length"}  # fmt: skip
_TRUNCATIONS = {True: True, False: False, "longest_first": True, "do_not_truncate": False}


def _choice(name: str, value: Any, choices: dict[Any, Any]) -> Any:
    if not isinstance(value, str | bool) or value not in choices:
        raise UserError(f"{name} is {value!r}; expected one of {', '.join(map(repr, choices))}.")
    return choices[value]


def _check_max_length(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise UserError(f"max_length is {value!r}; expected a whole number of tokens.")


def _padded_len(
    rows: Sequence[tuple[np.ndarray, np.ndarray | None]], seq_len: int, padding: str, truncates: bool
) -> int:
    """Returns T, the length to which texts, each with its pair or None, are padded or cut."""
    lengths = [len(a) + (2 if b is None else 3 + len(b)) for a, b in rows]
    if not truncates:
        seq_len = max([seq_len, *lengths])
    elif too_long := sum(truncated(*row, seq_len)[2] > 0 for row in rows):
        logging.info("%d of %d texts were cut to seq_len=%d", too_long, len(rows), seq_len)
    lengths = [min(length, seq_len) for length in lengths]
    if padding == "do_not_pad" and len(set(lengths)) > 1:
        raise UserError(
            f"the texts have {min(lengths)} to {max(lengths)} tokens, and padding is off; expected texts of "
            "one length, padding='longest' or padding='max_length'."
        )
    if padding != "max_length" and lengths:
        return max(*lengths, 3 if rows[0][1] is None else 4)  # with room for text, even if all are empty
    return seq_len


class XLNetTokenizer(Vocabulary):
    """Turns text into piece ids and back.

    It has the usual names of Hugging Face's tokenizers, and their results, with two differences: `encode`
    puts no special tokens around a text unless it is told to, and `decode` leaves out control symbols.

    A special symbol spelled out in a text is text, never the symbol; the exception is `<eop>`, the paragraph
    mark of corpora, which SentencePiece treats as a piece that users may write.

    Args:
        model_file: path of a SentencePiece model, local or gs://.
        model_proto: the serialized SentencePiece model, instead of `model_file`.
    """

    def __init__(
        self,
        model_file: str | os.PathLike | None = None,
        model_proto: bytes | None = None,
        cleaning: CleaningConfig = DEFAULT_CLEANING,
    ):
        if (model_file is None) == (model_proto is None):
            raise ValueError("give either model_file or model_proto")
        source = "the SentencePiece model" if model_file is None else os.fspath(model_file)
        if model_proto is None:
            model_proto = epath.Path(source).read_bytes()
            checksums.check(source, model_proto)
        self.model_proto = model_proto
        self.cleaning = cleaning
        try:
            self._processor = _load_processor(self.model_proto)
        except RuntimeError:
            raise UserError(
                f"{source} is not a SentencePiece model ({len(self.model_proto)} bytes)"
            ) from None
        check_word_marks(self.model_proto, source)
        check_special_symbols(self._processor, source)

    from_preset = hints.Absent()
    encode_plus = hints.Absent()

    def __repr__(self) -> str:
        return f"XLNetTokenizer(vocab_size={self.vocab_size}, cleaning={self.cleaning})"

    @classmethod
    def from_pretrained(
        cls, path: str | os.PathLike, cleaning: CleaningConfig | None = None, **unknown: Any
    ) -> Self:
        """Loads the tokenizer of a model.

        Args:
            path: a folder with spiece.model or tokenizer.json: of a run, of records, of the original's or
                Hugging Face's files; such a file; or the name of a model (see hub.locate).
            cleaning: how texts are cleaned; None: as files next to the tokenizer say (see read_cleaning).

        Example:
            >>> tokenizer = XLNetTokenizer.from_pretrained("xlnet_cased_L-12_H-768_A-12")
        """
        hints.refuse(unknown, ("cleaning",))
        located = locating.locate_tokenizer(path)
        file = locating.sentencepiece_file(located)
        return cls(file, cleaning=cleaning or read_cleaning(locating.tokenizer_folder(located)))

    def __call__(
        self,
        texts: str | Sequence[str],
        text_pairs: str | Sequence[str] | None = None,
        seq_len: int = 128,
        padding: str | bool = "max_length",
        truncation: str | bool = True,
        max_length: int | None = None,
        **unknown: Any,
    ) -> dict[str, np.ndarray]:
        """Turns texts, or pairs of texts, into what the models read.

        Args:
            texts: N strings, or one.
            seq_len: T; shorter texts are padded on the left.
            padding: "max_length" pads to seq_len; "longest" (or True) to the longest of these texts; False
                takes texts of one length only.
            truncation: True cuts texts to seq_len (see packing.truncated), which is logged; with False, T is
                that of the longest if it is more than seq_len.
            max_length: another name of seq_len.

        Returns:
            input_word_ids int32 [N, T], input_mask uint8 [N, T] (1: a token), input_type_ids uint8 [N, T].

        Example:
            >>> model.predict(tokenizer(["A fine film.", "A waste of time."]))
        """
        hints.refuse(unknown, ("seq_len", "padding", "truncation", "max_length"))
        pads_to = _choice("padding", padding, _PADDINGS)
        truncates = _choice("truncation", truncation, _TRUNCATIONS)
        if isinstance(texts, str):
            texts = [texts]
            text_pairs = [text_pairs] if isinstance(text_pairs, str) else text_pairs
        rows = self._encode_pairs(texts, text_pairs, "texts", "text_pairs")
        seq_len = seq_len if max_length is None else max_length
        _check_max_length(seq_len)
        seq_len = _padded_len(rows, seq_len, pads_to, truncates)
        packed = [pack(*row, seq_len=seq_len) for row in rows]
        input_ids = np.array([row.input_ids for row in packed], np.int32).reshape(-1, seq_len)
        return {
            "input_word_ids": input_ids,
            "input_mask": (input_ids != PAD_ID).astype(np.uint8),
            "input_type_ids": np.array([row.segment_ids for row in packed], np.uint8).reshape(-1, seq_len),
        }

    def __reduce__(self):
        return type(self), (None, self.model_proto, self.cleaning)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the SentencePiece model, hexadecimal."""
        return hashlib.sha256(self.model_proto).hexdigest()

    @functools.cached_property
    def ties(self) -> dict[str, list[int]]:
        """Short texts that the vocabulary splits in ways of equal scores, and their ids (see text.ties)."""
        return {text: self._processor.encode(text) for text in ties.probes(self.piece_table)}

    @functools.cached_property
    def space_id(self) -> int:
        """The piece that stands for a space alone, as before an unknown word; UNK_ID if there is none."""
        return self._processor.piece_to_id(UNDERLINE)

    @functools.cached_property
    def commas(self) -> CommaRule:
        return CommaRule(self._processor, self.pieces)

    def id_to_piece(self, piece_id: int) -> str:
        """Returns the piece of an id."""
        return self.pieces[piece_id]

    def score(self, piece_id: int) -> float:
        """Returns the log probability of a piece under the unigram model."""
        return self._processor.get_score(piece_id)

    @functools.cached_property
    def original_word_starts(self) -> np.ndarray:
        """Bool [V]: pieces that start a word by the original's rule: an underline, '<' or punctuation."""
        starts = (UNDERLINE, "<")
        return np.array([piece[0] in starts or piece in words.START_PUNCTUATION for piece in self.pieces])

    @functools.cached_property
    def word_starts(self) -> np.ndarray:
        """Bool [V]: pieces that start a word: the original's rule, and all pieces of unspaced scripts.

        Where a script puts no spaces between words (Chinese, Japanese, Thai, ...), SentencePiece's own pieces
        are the best available guess of words: each one starts a word. The bytes of a byte-fallback vocabulary
        (<0xE4>) start none; the original's rule takes them for symbols.
        """
        is_byte = np.array([self._processor.is_byte(number) for number in range(len(self.pieces))])
        return (self.original_word_starts | words.in_unspaced_script(self.pieces)) & ~is_byte

    def encode(
        self,
        text: Any,
        text_pair: Any = None,
        add_special_tokens: bool = False,
        padding: str | bool = False,
        truncation: str | bool = False,
        max_length: int | None = None,
        **unknown: Any,
    ) -> Any:
        """Cleans and encodes a text, or several texts.

        Args:
            text_pair: the second text, or the texts' second ones; needs special tokens between the two.
            add_special_tokens: put SEP and CLS around the texts, as the models read them.
            padding: "longest" (or True) or "max_length" pads on the left.
            truncation: whether to cut to max_length.
            max_length: most tokens, special ones included.
        """
        many = isinstance(text, list | tuple | np.ndarray)
        if text_pair is None and not (add_special_tokens or padding or truncation or unknown):
            if many:
                return [ids.tolist() for ids in self.encode_rows(text, "the texts")]
            check_text(text, "the text")
            return [piece_id for _, piece_id in self.commas.encode(clean_text(text, self.cleaning))]
        hints.refuse(unknown, ("add_special_tokens", "padding", "truncation", "max_length"))
        texts = text if many else [text]
        pairs = text_pair if many or text_pair is None else [text_pair]
        rows = self._rows(texts, pairs, add_special_tokens, padding, truncation, max_length)
        return rows if many else rows[0]

    def tokenize(self, text: Any) -> Any:
        """Cleans a text and splits it into pieces, or several texts; unknown pieces keep their spelling."""
        if isinstance(text, list | tuple | np.ndarray):
            return [self.encode_pieces(one) for one in text]
        return self.encode_pieces(text)

    def encode_pieces(self, text: str) -> list[str]:
        """Cleans a text and splits it into pieces; an unknown piece keeps its spelling."""
        check_text(text, "the text")
        return [piece for piece, _ in self.commas.encode(clean_text(text, self.cleaning))]

    def normalize(self, cleaned: str) -> tuple[str, list[int]]:
        """Applies SentencePiece's own normalization to a cleaned text.

        Returns the normalized text, with underlines for spaces, and the position in `cleaned` where each of
        its characters, and what follows the last, begins.
        """
        return self._processor.normalize(cleaned, with_offsets=True)

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes many texts, fast: returns the ids of all, int32 [N], and how many each text has."""
        return self._batch_encoder.encode(texts)

    @functools.cached_property
    def _batch_encoder(self) -> BatchEncoder:
        return BatchEncoder(self._processor, self.piece_table, self.commas, self.cleaning)

    def encode_rows(self, texts: Sequence[str], name: str) -> list[np.ndarray]:
        """Encodes texts: `encode` of each, having checked that they are a list of strings."""
        texts = text_list(texts, name)
        ids, lengths = self.encode_batch(texts)
        return np.split(ids, np.cumsum(lengths)[:-1]) if texts else []

    def decode(self, ids: Any, skip_special_tokens: bool | None = None) -> Any:
        """Returns the text of piece ids, or the texts of several rows of them.

        Args:
            skip_special_tokens: as in Hugging Face's tokenizers: False spells special tokens out, True leaves
                them out, `<unk>` included. None: control symbols vanish, `<unk>` is SentencePiece's mark.
        """
        ids = ids.numpy() if hasattr(ids, "numpy") else ids  # of tensors
        ids = [ids] if isinstance(ids, int | np.integer) else list(ids)
        if ids and np.ndim(ids[0]) == 1:
            return [self.decode(row, skip_special_tokens) for row in ids]
        if skip_special_tokens is None:
            return self._processor.decode([self._checked(piece_id) for piece_id in ids])
        tokens = self.convert_ids_to_tokens(ids, skip_special_tokens)
        special = set(self.all_special_tokens)
        groups = itertools.groupby(tokens, special.__contains__)
        return "".join(
            "".join(group) if is_special else self.convert_tokens_to_string(group)
            for is_special, group in groups
        )

    def batch_decode(self, rows: Any, skip_special_tokens: bool | None = None) -> list[str]:
        """Returns the text of each row of piece ids; see `decode`."""
        return [self.decode(row, skip_special_tokens) for row in rows]

    def save_pretrained(self, folder: str | os.PathLike) -> None:
        """Writes the tokenizer as `from_pretrained`, also Hugging Face's, reads it."""
        target = files.make_folder(folder)
        read = files.fields_reader(target, {TOKENIZER_CONFIG_FILE: None})
        stated = cleaning_lib.find(read, target)
        if stated not in (None, self.cleaning):
            raise UserError(f"{target} has a model with {stated}; the tokenizer has {self.cleaning}.")
        if (target / TOKENIZER_FILE).exists() and (target / TOKENIZER_FILE).read_bytes() != self.model_proto:
            folders.claim(target, folders.FOREIGN, flag="folder")
        settings = {"tokenizer_class": "XLNetTokenizer", **self.cleaning.to_hugging_face()}
        if not self.cleaning.normalize_quotes:
            settings["normalize_quotes"] = False  # of which Hugging Face knows nothing
        files.write(target / TOKENIZER_FILE, self.model_proto)
        files.write(target / TOKENIZER_CONFIG_FILE, json.dumps(settings, indent=2) + "\n")
        write_tokenizer_json(target, self.piece_table, self.cleaning)
        checksums.update(target, [TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_JSON_FILE])

    def _encode_pairs(
        self, texts: Sequence[str], pairs: Sequence[str] | None, name: str, pairs_name: str
    ) -> list[tuple[np.ndarray, np.ndarray | None]]:
        """Encodes texts, each with its pair, None without pairs; messages call them by these names."""
        ids_a = self.encode_rows(texts, name)
        if pairs is None:
            return [(ids, None) for ids in ids_a]
        ids_b = self.encode_rows(pairs, pairs_name)
        if len(ids_b) != len(ids_a):
            second = pairs_name.removeprefix("the ")
            raise UserError(f"there are {len(ids_a)} texts and {len(ids_b)} {second}; expected as many.")
        return [*zip(ids_a, ids_b)]

    def _rows(self, texts, pairs, add_special_tokens, padding, truncation, max_length) -> list[list[int]]:
        """Encodes texts or pairs of them, cut and padded."""
        padding = _choice("padding", padding, _PADDINGS)
        truncates = _choice("truncation", truncation, _TRUNCATIONS)
        if (truncates or padding == "max_length") and max_length is None:
            raise UserError("truncation and padding='max_length' need max_length, the most tokens of a text.")
        if max_length is not None:
            _check_max_length(max_length)
        if pairs is not None and not add_special_tokens:
            raise UserError("two texts need special tokens between them: give add_special_tokens=True.")
        rows = []
        for a, b in self._encode_pairs(texts, pairs, "the texts", "the second texts"):
            if not add_special_tokens:
                rows.append(a[:max_length].tolist() if truncates else a.tolist())
                continue
            first, second = truncated(a, b, max_length)[:2] if truncates else (a, b)
            after = [] if second is None else [*map(int, second), SEP_ID]
            rows.append([*map(int, first), SEP_ID, *after, CLS_ID])
        length = {"max_length": max_length, "longest": max(map(len, rows), default=0)}.get(padding, 0)
        return [[PAD_ID] * (length - len(row)) + row for row in rows]


# Tokenizers that differ in their cleaning share it.
_load_processor = functools.lru_cache(maxsize=1)(ties.load_processor)
