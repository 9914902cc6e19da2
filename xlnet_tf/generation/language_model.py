"""A pretrained model for texts: continues, fills, scores and embeds them."""

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from typing_extensions import Self

from xlnet_tf import hints
from xlnet_tf.errors import UserError
from xlnet_tf.generation import settings as settings_lib
from xlnet_tf.generation.arrays import embedding, gaps, scoring
from xlnet_tf.generation.arrays.engine import Engine
from xlnet_tf.generation.arrays.openvino import OpenVinoEngine
from xlnet_tf.generation.results import Continuation, FilledText, Filling, Guess, TextScore, TextVectors
from xlnet_tf.schema import is_whole
from xlnet_tf.serving.openvino.folder import find_folder
from xlnet_tf.text.inputs import text_list
from xlnet_tf.text.special_tokens import EOP_ID, PAD_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

if TYPE_CHECKING:
    from xlnet_tf.models.pretrainer import XLNetPretrainer

EASIEST_FIRST = "easiest_first"

_Method = TypeVar("_Method", bound=Callable[..., Any])
_OF_EACH_TEXT = ("contexts", "orders", "order")  # options that have a value for each text


def _one_or_list(method: _Method) -> _Method:
    """Lets a method take one text instead of a list, and return its result instead of a list."""
    signature = inspect.signature(method)
    _, texts, *_ = signature.parameters

    @functools.wraps(method)
    def asked(*args, **options):
        given = signature.bind(*args, **options).arguments
        if not isinstance(given[texts], str):
            return method(*args, **options)
        for name in (texts, *_OF_EACH_TEXT):
            value = given.get(name)
            if name in (texts, "contexts") or not isinstance(value, str):  # an order may be one of all texts
                given |= {} if value is None else {name: [value]}
        return method(**given)[0]

    return asked  # type: ignore[return-value]


class XLNetLanguageModel:
    """A pretrained model and its tokenizer, for texts; rows of a batch never see each other.

    Each method takes a list of texts, or one text, and then returns its result alone.

    Example:
        >>> model = XLNetLanguageModel.from_pretrained("xlnet_cased_L-12_H-768_A-12")
        >>> model.generate("The film was so good that", max_new_tokens=20, top_p=0.9).text
        >>> model.fill_mask("I live in <mask> <mask>.").fillings[0].pieces
        >>> model.score(["A fine film.", "Fine a film."], order="right_to_left")[0].total
        >>> model.embed(["A fine film."]).mean
    """

    from_preset = hints.Absent()

    def __init__(self, model: "XLNetPretrainer | OpenVinoEngine", tokenizer: XLNetTokenizer):
        self._engine: Engine
        if isinstance(model, OpenVinoEngine):
            self._engine = model
        else:
            from xlnet_tf.generation.graphs import LanguageModelGraphs  # here: TensorFlow

            self._engine = LanguageModelGraphs(model)
        if tokenizer.vocab_size != self._engine.vocab_size:
            raise UserError(
                f"the tokenizer has {tokenizer.vocab_size} pieces, the model {self._engine.vocab_size}: "
                "expected the model's own spiece.model"
            )
        self.model = model
        self.tokenizer = tokenizer

    def __repr__(self) -> str:
        return f"XLNetLanguageModel(model={self.model!r}, tokenizer={self.tokenizer!r})"

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike, *, threads: int = 0, **options) -> Self:
        """Loads a pretrained model with its tokenizer.

        Args:
            path: folder of a run, or of the original's or Hugging Face's files, with spiece.model; or one
                that export --runtime=openvino wrote, which needs no TensorFlow.
            threads: that OpenVINO computes with; 0: one for each core. TensorFlow's are the process'.
            **options: XLNetEncoder's. uniform_when_blind is off even if the run had it: a language model's
                first token must be predicted from nothing.
        """
        if version := find_folder(path):
            if options:
                raise UserError(
                    f"{path} is exported for OpenVINO, which fixes {', '.join(sorted(options))}: leave them "
                    "out, or load the weights that it was exported from"
                )
            return cls(version.language_model(threads), version.load_tokenizer())
        from xlnet_tf.models.loading import Pretrained
        from xlnet_tf.models.pretrainer import XLNetPretrainer

        source = Pretrained(path)
        options = {"uniform_when_blind": False, **options}
        return cls(XLNetPretrainer.from_pretrained(source, **options), source.load_tokenizer())

    def save_pretrained(self, folder: str | os.PathLike) -> None:
        """Writes model and tokenizer to a folder, as `from_pretrained` and every command read it."""
        if isinstance(self.model, OpenVinoEngine):
            raise UserError(
                "a model that was exported for OpenVINO has no weights to save: copy its folder, or save the "
                "weights that it was exported from"
            )
        self.model.save_pretrained(folder, self.tokenizer)

    @hints.refusing_options
    @_one_or_list
    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        max_new_tokens: int = 50,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
        forbid: Sequence[str] = (),
        repetition_penalty: float = 1.0,
        batch_size: int = 8,
    ) -> list[Continuation]:
        """Continues texts, from left to right, by sampling.

        Args:
            prompts: texts; may be empty. A prompt and what follows it have at most settings.LONGEST pieces.
            max_new_tokens: pieces to write after each.
            temperature: by which logits are divided; 0 takes the likeliest piece each time.
            top_k: how many of the likeliest pieces to draw from; 0: all.
            top_p: draws from the fewest likeliest pieces that have this much probability.
            seed: a continuation depends on it and on the prompt's position in the list, not on other prompts.
            stop: pieces, such as "." or "<eop>", that end a text, as its last one.
            forbid: pieces that are never written, such as "<eop>".
            repetition_penalty: from 1, for none: the log-probability of each piece in the prompt, or written,
                is multiplied by it. All probabilities are of the distribution that it and `forbid` make.
            batch_size: texts that are read together.
        """
        ids = self._encode_prompts(prompts, max_new_tokens)
        settings = settings_lib.same_for_all(len(ids), temperature, top_k, top_p, seed)
        limits = self._limits(stop, forbid, repetition_penalty)

        def write(rows):
            prompts = _padded(ids, rows)
            written = self._engine.sample(*prompts, max_new_tokens, settings.take(rows), *limits)
            candidates = zip(rows, written.tokens[:, 0], written.log_probs[:, 0])
            return [self._continuation(ids[row], *each) for row, *each in candidates]

        return _in_batches(write, ids, batch_size)

    @hints.refusing_options
    @_one_or_list
    def search(
        self,
        prompts: str | Sequence[str],
        *,
        max_new_tokens: int = 50,
        beams: int = 4,
        stop: Sequence[str] = (),
        forbid: Sequence[str] = (),
        repetition_penalty: float = 1.0,
        batch_size: int = 8,
    ) -> list[list[Continuation]]:
        """Continues texts by beam search.

        Args:
            beams: continuations that are followed at a time, and returned; at most settings.MOST_CANDIDATES.
            stop, forbid, repetition_penalty: as in `generate`.

        Returns:
            For each prompt its likeliest continuations, best first.
        """
        ids = self._encode_prompts(prompts, max_new_tokens)
        self._check_candidates("beams", beams)
        limits = self._limits(stop, forbid, repetition_penalty)

        def write(rows):
            written = self._engine.search(*_padded(ids, rows), max_new_tokens, beams, *limits)
            return [
                [self._continuation(ids[row], *each) for each in zip(*beam) if np.isfinite(each[1]).all()]
                for row, *beam in zip(rows, written.tokens, written.log_probs)
            ]

        return _in_batches(write, ids, batch_size)

    @hints.refusing_options
    @_one_or_list
    def fill_mask(
        self,
        texts: str | Sequence[str],
        *,
        top_k: int = 5,
        orders: Sequence[Sequence[int]] | None = None,
        batch_size: int = 8,
    ) -> list[FilledText]:
        """Fills the gaps of texts, all gaps of a text together, by beam search.

        Args:
            texts: each of at most settings.LONGEST pieces, and with at least one `<mask>` and at most
                gaps.MOST_GAPS; each stands for one piece.
            top_k: fillings that are followed at a time, and returned, and guesses for each gap; at most
                settings.MOST_CANDIDATES.
            orders: the numbers of each text's gaps, from 0, in the order of filling; None: left to right.
        """
        texts = text_list(texts, "texts")
        ids = self._encode("texts", texts)
        orders = gaps.check_gaps(texts, orders)
        self._check_candidates("top_k", top_k)

        def fill(rows):
            marked = self._gaps(texts, orders, rows)
            filled = self._engine.fill_jointly(*marked, top_k)
            return [self._filled_text(filled, marked, index) for index in range(len(rows))]

        return _in_batches(fill, ids, batch_size)

    @hints.refusing_options
    @_one_or_list
    def infill(
        self,
        texts: str | Sequence[str],
        *,
        orders: Sequence[Sequence[int]] | str | None = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        batch_size: int = 8,
    ) -> list[str]:
        """Fills the gaps of texts by sampling.

        Args:
            texts: each has one `<mask>` or more; each stands for one piece.
            orders: as in `fill_mask`; or "easiest_first": always the gap next whose best piece is likeliest.
        """
        easiest_first = isinstance(orders, str) and orders == EASIEST_FIRST
        texts = text_list(texts, "texts")
        ids = self._encode("texts", texts)
        orders = gaps.check_gaps(texts, None if easiest_first else orders)
        settings = settings_lib.same_for_all(len(texts), temperature, top_k, top_p, seed)

        def fill(rows):
            marked = self._gaps(texts, orders, rows)
            written, order = self._engine.infill(*marked, settings.take(rows), easiest_first)
            marked = marked._replace(order=order)
            return [self._fill_in(marked, row, tokens) for row, [tokens] in enumerate(written.tokens)]

        return _in_batches(fill, ids, batch_size)

    @hints.refusing_options
    @_one_or_list
    def score(
        self,
        texts: str | Sequence[str],
        contexts: str | Sequence[str] | None = None,
        *,
        order: str | Sequence[Sequence[int]] = "left_to_right",
        seed: int = 0,
        batch_size: int = 8,
    ) -> list[TextScore]:
        """Scores texts in a factorization order: see arrays.scoring.score_texts, which explains options."""
        return scoring.score_texts(
            self._engine, self.tokenizer, texts, contexts, order=order, seed=seed, batch_size=batch_size
        )

    @hints.refusing_options
    @_one_or_list
    def embed(
        self, texts: str | Sequence[str], *, tokens: bool = False, layer: int = -1, batch_size: int = 8
    ) -> TextVectors:
        """Returns vectors of texts: see arrays.embedding.embed_texts, which explains the options."""
        return embedding.embed_texts(
            self._engine, self.tokenizer, texts, tokens=tokens, layer=layer, batch_size=batch_size
        )

    def _check_candidates(self, name: str, count: int):
        _check_whole(name, count, min(settings_lib.MOST_CANDIDATES, self.tokenizer.vocab_size))

    def _encode(self, name: str, texts: Sequence[str], new_tokens: int = 0) -> list[np.ndarray]:
        """Returns the ids of each of the texts, of which there is one at least."""
        ids = self.tokenizer.encode_rows(texts, name)
        settings_lib.check_text_lengths(name, [*map(len, ids)], new_tokens, longest=self._engine.longest)
        return ids

    def _encode_prompts(self, prompts: Sequence[str], max_new_tokens: int) -> list[np.ndarray]:
        _check_whole("max_new_tokens", max_new_tokens, self._engine.longest)
        return self._encode("prompts", prompts, max_new_tokens)

    def _gaps(self, texts: Sequence[str], orders: Sequence[Sequence[int]], rows: Sequence[int]) -> gaps.Gaps:
        """Reads some of the texts with gaps, and puts the gaps into the order of filling."""
        return gaps.read_gaps(self.tokenizer, [texts[row] for row in rows], [orders[row] for row in rows])

    def _limits(
        self, stop: Sequence[str], forbid: Sequence[str], repetition_penalty: float
    ) -> tuple[np.ndarray, settings_lib.WritingRules]:
        """Returns the pieces that end a text, and the rules for what may be written."""
        stop_ids = settings_lib.piece_ids("stop", stop, self.tokenizer, least=EOP_ID)
        return stop_ids, settings_lib.writing_rules(self.tokenizer, forbid, repetition_penalty, stop)

    def _continuation(self, prompt: np.ndarray, tokens: np.ndarray, log_probs: np.ndarray) -> Continuation:
        count = np.count_nonzero(tokens != PAD_ID)
        tokens = tokens[:count]
        whole = self.tokenizer.decode([*prompt, *tokens])
        begin = len(self.tokenizer.decode(prompt))
        return Continuation(whole[begin:], self._spell(tokens), log_probs[:count], whole)

    def _filled_text(self, filled: Any, marked: gaps.Gaps, row: int) -> FilledText:
        """Makes strings of one text's part of arrays (see infilling.Filled)."""
        count = np.count_nonzero(marked.order[row] >= 0)
        fills = zip(filled.fills.tokens[row], filled.fills.log_probs[row], filled.apart[row], strict=True)
        fillings = [
            Filling(
                self._fill_in(marked, row, tokens),
                self._spell(tokens[:count]),
                np.exp(log_probs[:count]),
                np.exp(apart[:count]),
                float(log_probs.sum(dtype=np.float64)),
            )
            for tokens, log_probs, apart in fills
            if np.isfinite(log_probs).all()
        ]
        guesses, alone = (
            [
                [*map(Guess, self._spell(tokens[tokens != PAD_ID]), np.exp(log_probs).tolist())]
                for tokens, log_probs in zip(found.tokens[row, :count], found.log_probs[row, :count])
            ]
            for found in (filled.guesses, filled.guesses_apart)
        )
        return FilledText(fillings, guesses, alone)

    def _fill_in(self, marked: gaps.Gaps, row: int, tokens: np.ndarray) -> str:
        return self.tokenizer.decode(gaps.fill_in(marked, row, tokens))

    def _spell(self, ids: Iterable[int]) -> list[str]:
        return [self.tokenizer.id_to_piece(piece) for piece in ids]


def _check_whole(name: str, value: int, most: int):
    is_right = is_whole(value) and 1 <= value <= most
    settings_lib.check_range(name, value, is_right, f"a whole number from 1 to {most}")


def _in_batches(function: Callable[[np.ndarray], list], ids: Sequence[np.ndarray], batch_size: int) -> list:
    """Computes function(rows) for batches of texts of about the same length; returns results row by row."""
    results = [None] * len(ids)
    for rows in settings_lib.by_length([*map(len, ids)], batch_size):
        for row, result in zip(rows, function(rows), strict=True):
            results[row] = result
    return results


def _padded(ids: Sequence[np.ndarray], rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of some rows [B, T], padded, and their lengths [B]."""
    lengths = np.array([len(ids[row]) for row in rows], np.int32)
    padded = np.full([len(rows), lengths.max()], PAD_ID, np.int32)
    for target, row in zip(padded, rows, strict=True):
        target[: len(ids[row])] = ids[row]
    return padded, lengths
