"""Answers of a pretrained language model without TensorFlow: the signatures of LanguageModelModule.

Shapes: B batch, T tokens, D model, C candidates of a text, G tokens to write, M gaps, K guesses.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xlnet_tf.generation.arrays import gaps, scoring
from xlnet_tf.generation.arrays.engine import Engine
from xlnet_tf.generation.settings import COLDEST, HOTTEST, Sampling, writing_rules
from xlnet_tf.serving.answers.answering import Kinds, features
from xlnet_tf.serving.answers.options import check_buckets
from xlnet_tf.serving.answers.signatures import MOST_TEXT_BYTES, SERVING_DEFAULT
from xlnet_tf.serving.openvino.folder import OpenVinoFolder
from xlnet_tf.text.packing import pack
from xlnet_tf.text.special_tokens import PAD_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

Answers = dict[str, Any]
_TEXT, _NUMBER, _REAL = (bytes,), (np.int64,), (np.float32,)
_STATE = {"truncated": (bool,), "error": (bytes,)}
_NONE = np.zeros(0, np.int32)


class LanguageModelAnswering:
    """See LanguageModelModule, whose options and answers it has; the engine computes the numbers."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: XLNetTokenizer,
        *,
        seq_len: int,
        max_new_tokens: int,
        top_k: int,
        beams: int,
        layer: int,
        forbid: Sequence[str] = (),
        repetition_penalty: float = 1.0,
        buckets: Sequence[int] | None = None,
    ):
        self.tokenizer, self.seq_len = tokenizer, seq_len
        self.buckets = check_buckets(seq_len, buckets, segment_len=0)
        self._engine = engine
        self._max_new_tokens, self._top_k, self._beams, self._layer = max_new_tokens, top_k, beams, layer
        self._rules = writing_rules(tokenizer, forbid, repetition_penalty)
        self._functions: dict[str, Callable[..., Answers]] = {
            SERVING_DEFAULT: self._serve,
            "embed": self._embed,
            "score": self._score,
            "fill_mask": self._fill_mask,
            "generate": self._generate,
            "search": self._search,
        }

    def signatures(self) -> dict[str, Kinds]:
        """Returns what each signature takes and gives."""
        width = self._engine.d_model
        vectors = {"mean": (np.float32, width), "cls": (np.float32, width)}
        text = {"text": _TEXT}
        counted = {"num_tokens": (np.int32,), **_STATE}
        written = {
            "text": _TEXT,
            "continuation": _TEXT,
            "log_probability": _REAL,
            "pieces": (bytes, -1),
            "log_probabilities": (np.float32, -1),
            "num_tokens": (np.int32,),
        }
        found = {name: (kind, self._beams, *sizes) for name, (kind, *sizes) in written.items()}
        return {
            SERVING_DEFAULT: Kinds(text, {**vectors, **counted}),
            "embed": Kinds(
                text, {**vectors, "tokens": (np.float32, -1, width), "pieces": (bytes, -1), **counted}
            ),
            "score": Kinds(
                {"text": _TEXT, "context": _TEXT, "order": _TEXT, "seed": _NUMBER},
                {"log_probability": _REAL, "log_probabilities": (np.float32, -1), "pieces": (bytes, -1)}
                | counted,
            ),
            "fill_mask": Kinds(text, self._filled_kinds()),
            "generate": Kinds(
                {"prompt": _TEXT, "max_new_tokens": _NUMBER, "temperature": _REAL}
                | {"top_k": _NUMBER, "top_p": _REAL, "seed": _NUMBER},
                {**written, **_STATE},
            ),
            "search": Kinds({"prompt": _TEXT, "max_new_tokens": _NUMBER}, {**found, **_STATE}),
        }

    def _filled_kinds(self) -> dict[str, tuple]:
        count = self._top_k
        fillings = {"pieces": bytes, "probabilities": np.float32, "alone_probabilities": np.float32}
        guesses = {"guesses": bytes, "guess_probabilities": np.float32}
        guesses |= {f"alone_{name}": kind for name, kind in guesses.items()}
        return {
            "num_masks": (np.int32,),
            "texts": (bytes, count),
            "probability": (np.float32, count),
            "log_probability": (np.float32, count),
            **{name: (kind, count, -1) for name, kind in fillings.items()},
            **{name: (kind, -1, count) for name, kind in guesses.items()},
            **_STATE,
        }

    def run(self, name: str, inputs: Mapping[str, np.ndarray]) -> Answers:
        """Answers B rows, at least one, of a signature; texts come and go as bytes."""
        return self._functions[name](**inputs)

    def _serve(self, text: np.ndarray) -> Answers:
        answers = self._embed(text)
        return {name: answers[name] for name in ("mean", "cls", "num_tokens", "truncated", "error")}

    def _embed(self, text: np.ndarray) -> Answers:
        (ids,), error = self._read(text=text)
        lengths = [min(len(row), self.seq_len - 2) + 2 for row in ids]
        length = next(bucket for bucket in self.buckets if max(lengths) <= bucket)
        packed = features(pack(row, seq_len=length, padding="right") for row in ids)
        vectors = self._engine.embed(*packed.values(), layer=self._layer)._asdict()
        for values in vectors.values():
            values[error != b""] = np.nan
        return {
            **vectors,
            "pieces": self._spell(packed["input_word_ids"]),
            "num_tokens": np.array(lengths, np.int32),
            "truncated": np.array([len(row) > self.seq_len - 2 for row in ids]),
            "error": error,
        }

    def _score(self, text: np.ndarray, context: np.ndarray, order: np.ndarray, seed: np.ndarray) -> Answers:
        (whole_texts, whole_contexts), error = self._read(text=text, context=context)
        texts = [row[: self.seq_len] for row in whole_texts]
        contexts = [_last(row, self.seq_len - len(text)) for row, text in zip(whole_contexts, texts)]
        orders = [name.decode(errors="replace") for name in order]
        ids, mask, is_scored = scoring.joined(contexts, texts)
        ranks = np.zeros(ids.shape, np.int32)
        for row, (name, tokens) in enumerate(zip(orders, texts)):
            known = name if name in scoring.ORDERS else scoring.ORDERS[0]
            ranks[row, is_scored[row]] = scoring.ranks_of(known, len(tokens), int(seed[row]))
        found = self._engine.score(ids, mask, is_scored, ranks)
        counts = np.array([*map(len, texts)], np.int32)
        log_probs = np.zeros([len(texts), max(1, counts.max())], np.float32)
        pieces = np.full(log_probs.shape, PAD_ID)
        for row, tokens in enumerate(texts):
            if orders[row] not in scoring.ORDERS:
                found[row] = np.nan
                expected = f"order is '{orders[row]}'; expected one of {', '.join(scoring.ORDERS)}"
                error[row] = error[row] or expected.encode()
            log_probs[row, : len(tokens)] = found[row, is_scored[row]]
            pieces[row, : len(tokens)] = tokens
        total = log_probs.sum(axis=1)
        total[self._is_oversized(text, context)] = np.nan
        return {
            "log_probability": total,
            "log_probabilities": log_probs,
            "pieces": self._spell(pieces),
            "num_tokens": counts,
            "truncated": np.array(
                [
                    len(kept) + len(tokens) < len(before) + len(whole)
                    for kept, tokens, before, whole in zip(contexts, texts, whole_contexts, whole_texts)
                ]
            ),
            "error": error,
        }

    def _fill_mask(self, text: np.ndarray) -> Answers:
        texts, error = self._readable(text=text)
        whole = [gaps.encode_with_marks(self.tokenizer, row.split(gaps.MARK)) for row in texts[0]]
        kept = [row[: self.seq_len] for row in whole]
        counts = np.array([np.count_nonzero(np.equal(row, gaps.MASK_ID)) for row in kept], np.int32)
        is_right = error == b""
        for row, (count, asked) in enumerate(zip(counts, (row.count(gaps.MARK) for row in texts[0]))):
            if count != asked:
                problem = f"the number of {gaps.MARK} in the first {self.seq_len} tokens is {count}"
                expected = "all of the text's"
            elif count > self._max_new_tokens:
                problem = f"the number of {gaps.MARK} in the text is {count}"
                expected = f"at most {self._max_new_tokens}"
            else:
                continue
            is_right[row] = False
            error[row] = error[row] or f"{problem}; expected {expected}".encode()
        marked = gaps.gaps_of(kept, [range(count) if right else () for count, right in zip(counts, is_right)])
        filled = self._engine.fill_jointly(*marked, self._top_k)
        fills, guesses, alone = filled.fills, filled.guesses, filled.guesses_apart
        written = [
            [
                self._decode(gaps.fill_in(marked, row, tokens)) if count and right else texts[0][row].encode()
                for tokens in fills.tokens[row]
            ]
            for row, (count, right) in enumerate(zip(counts, is_right))
        ]
        return {
            "num_masks": counts,
            "texts": _objects(written),
            "probability": np.where(is_right[:, None], np.exp(fills.totals), np.float32(0)),
            "log_probability": np.where(is_right[:, None], fills.totals, np.float32(-np.inf)),
            "pieces": self._spell(fills.tokens),
            "probabilities": _probabilities(fills.tokens, fills.log_probs),
            "alone_probabilities": _probabilities(fills.tokens, filled.apart),
            "guesses": self._spell(guesses.tokens),
            "guess_probabilities": _probabilities(guesses.tokens, guesses.log_probs),
            "alone_guesses": self._spell(alone.tokens),
            "alone_guess_probabilities": _probabilities(alone.tokens, alone.log_probs),
            "truncated": np.array([len(row) < len(all_of_it) for row, all_of_it in zip(kept, whole)]),
            "error": error,
        }

    def _generate(self, prompt, max_new_tokens, temperature, top_k, top_p, seed) -> Answers:
        sampling = Sampling(
            seeds=seed,
            temperature=np.where(temperature >= COLDEST, temperature, np.float32(0)),
            top_k=np.clip(top_k, 0, self.tokenizer.vocab_size).astype(np.int32),
            top_p=top_p,
        )
        limits = {
            "temperature": (temperature, 0, HOTTEST, f"0, to take the likeliest piece, to {HOTTEST}"),
            "top_k": (top_k, 0, np.inf, "0, for all pieces, or more"),
            "top_p": (top_p, np.nextafter(np.float32(0), np.float32(1)), 1, "more than 0, to 1"),
        }

        def write(rows, ids, lengths, count):
            return self._engine.sample(ids, lengths, count, sampling.take(rows), _NONE, self._rules)

        answers = self._continue(prompt, max_new_tokens, limits, 1, write)
        return {name: values if name in _STATE else values[:, 0] for name, values in answers.items()}

    def _search(self, prompt, max_new_tokens) -> Answers:
        def write(rows, ids, lengths, count):
            return self._engine.search(ids, lengths, count, self._beams, _NONE, self._rules)

        return self._continue(prompt, max_new_tokens, {}, self._beams, write)

    def _continue(self, prompt, max_new_tokens, limits, candidates: int, write: Callable) -> Answers:
        """Continues prompts [B] by `max_new_tokens` [B] pieces, those without an error."""
        (whole,), error = self._read(prompt=prompt)
        most = self._max_new_tokens
        limits = {"max_new_tokens": (max_new_tokens, 1, most, f"1 to {most}"), **limits}
        for name, (values, least, largest, expected) in limits.items():
            for row in np.flatnonzero(~((values >= least) & (values <= largest))):
                error[row] = error[row] or f"{name} is {_spelled(values[row])}; expected {expected}".encode()
        new_tokens = np.where(error == b"", max_new_tokens, 0)
        kept = [_last(row, self.seq_len - count) for row, count in zip(whole, new_tokens)]
        shape = len(kept), candidates, max(1, new_tokens.max())
        tokens, log_probs = np.full(shape, PAD_ID, np.int32), np.zeros(shape, np.float32)
        for count in set(new_tokens[new_tokens > 0].tolist()):
            rows = np.flatnonzero(new_tokens == count)
            lengths = np.array([len(kept[row]) for row in rows], np.int32)
            ids = np.full([len(rows), max(1, lengths.max())], PAD_ID, np.int32)
            for row, own in zip(ids, rows):
                row[: len(kept[own])] = kept[own]
            written = write(rows, ids, lengths, count)
            tokens[rows, :, :count], log_probs[rows, :, :count] = written.tokens, written.log_probs
        counts = np.count_nonzero(tokens != PAD_ID, axis=2).astype(np.int32)
        text, continuation = np.empty(shape[:2], object), np.empty(shape[:2], object)
        for row, candidate in np.ndindex(shape[:2]):
            new = tokens[row, candidate, : counts[row, candidate]]
            text[row, candidate] = self._decode([*kept[row], *new])
            continuation[row, candidate] = text[row, candidate][len(self._decode(kept[row])) :]
        return {
            "text": text,
            "continuation": continuation,
            "log_probability": log_probs.sum(axis=2),
            "pieces": self._spell(tokens),
            "log_probabilities": log_probs,
            "num_tokens": counts,
            "truncated": np.array([len(row) < len(all_of_it) for row, all_of_it in zip(kept, whole)]),
            "error": error,
        }

    def _read(self, **texts: np.ndarray) -> tuple[list[list[np.ndarray]], np.ndarray]:
        """Returns the ids of columns of texts, and the rows' errors, bytes [B]."""
        readable, error = self._readable(**texts)
        return [self.tokenizer.encode_rows(column, "texts") for column in readable], error

    def _readable(self, **texts: np.ndarray) -> tuple[list[list[str]], np.ndarray]:
        """Returns columns of texts, those of oversized rows empty, and the rows' errors, bytes [B]."""
        oversized = self._is_oversized(*texts.values())
        error = np.full(len(oversized), b"", object)
        for row in np.flatnonzero(oversized):
            sizes = ", ".join(f"{name} has {len(column[row])} bytes" for name, column in texts.items())
            error[row] = f"{sizes}; expected at most {MOST_TEXT_BYTES}".encode()
        columns = [
            ["" if large else text.decode(errors="replace") for text, large in zip(column, oversized)]
            for column in texts.values()
        ]
        return columns, error

    @staticmethod
    def _is_oversized(*columns: np.ndarray) -> np.ndarray:
        return np.any([[len(text) > MOST_TEXT_BYTES for text in column] for column in columns], axis=0)

    def _spell(self, ids: np.ndarray) -> np.ndarray:
        """Spells pieces of any shape, and PAD as ""."""
        flat = [b"" if piece == PAD_ID else self.tokenizer.id_to_piece(piece).encode() for piece in ids.flat]
        return _objects(flat).reshape(ids.shape)

    def _decode(self, ids: Sequence[int]) -> bytes:
        return self.tokenizer.decode(ids).encode()


def open_answering(version: OpenVinoFolder) -> LanguageModelAnswering:
    """Loads what answers for an exported language model."""
    return LanguageModelAnswering(
        version.language_model(),
        version.load_tokenizer(),
        seq_len=version.seq_len,
        buckets=version.buckets,
        **version.options,
    )


def _last(ids: np.ndarray, count: int) -> np.ndarray:
    return ids[max(0, len(ids) - count) :]


def _objects(values: Sequence[Any]) -> np.ndarray:
    return np.array(values, object)


def _probabilities(tokens: np.ndarray, log_probs: np.ndarray) -> np.ndarray:
    """Returns probabilities of tokens of any shape, 0 for PAD."""
    return np.where(tokens == PAD_ID, np.float32(0), np.exp(log_probs))


def _spelled(value: np.number) -> str:
    """Returns a number as TensorFlow spells it in the messages of a SavedModel."""
    return f"{value:f}" if isinstance(value, np.floating) else str(value)
