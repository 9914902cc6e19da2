"""SavedModels of pretrained models: texts as vectors, their likelihood, gaps filled, prompts continued."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from xlnet_tf.errors import UserError
from xlnet_tf.generation import decoding_loop, gap_parsing, scoring, settings
from xlnet_tf.generation.embedding import embed
from xlnet_tf.generation.functions import functions_of
from xlnet_tf.generation.infilling import fill_jointly
from xlnet_tf.generation.layout import AT_ONCE, TextLayout, continuation
from xlnet_tf.serving.graph.exported_model import ExportableModel
from xlnet_tf.serving.graph.inputs import check_rows, empty_oversized_texts, fault, first_fault, signature
from xlnet_tf.serving.openvino.folder import LANGUAGE_MODEL_GRAPHS
from xlnet_tf.text.graph.packing import last_pieces
from xlnet_tf.text.special_tokens import PAD_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

EMBED, SCORE, FILL_MASK, GENERATE, SEARCH = "embed", "score", "fill_mask", "generate", "search"
_SPECS = {
    kind: tf.TensorSpec([None], dtype)
    for kind, dtype in ((str, tf.string), (int, tf.int64), (float, tf.float32))
}
_PROMPT = "The film was so good that I"
# A row of a request to each signature, a method of that name; it also tells the types of its inputs.
_ROWS = {
    EMBED: {"text": "A fine film."},
    SCORE: {"text": "A fine film.", "context": "I liked it.", "order": "left_to_right", "seed": 0},
    FILL_MASK: {"text": f"I live in {gap_parsing.MARK} {gap_parsing.MARK}, the largest city of America."},
    GENERATE: {
        "prompt": _PROMPT,
        "max_new_tokens": 8,
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "seed": 0,
    },
    SEARCH: {"prompt": _PROMPT, "max_new_tokens": 8},
}
_NEW_TOKENS = 64
_OF_ROWS = ("truncated", "error")  # what all continuations of a prompt have in common


class LanguageModelModule(ExportableModel):
    """What a pretrained model can do without fine-tuning.

    Signatures: serving_default (text [B] string), examples, tokens: see ExportableModel; they give
        mean [B, D], the mean of the text's tokens; zeros for an empty text.
        cls [B, D], the vector of CLS.
        num_tokens [B] int32, SEP and CLS included.
        truncated [B] bool, whether the text was cut to seq_len (not of tokens).
        error [B] string, "" or what is wrong with a row, whose vectors are NaN then (not of tokens): a text
            of more than 512 KiB, in all signatures.
      embed (text): these, and of each token
        tokens [B, T, D], its vector; zeros from num_tokens on.
        pieces [B, T] string; "" from num_tokens on.
      score (text, context, order [B] string; seed [B] int64): the text's likelihood after the context, which
      may be empty, in an order of generation.scoring.ORDERS ("random" is drawn from the seed):
        log_probability [B], of the whole text, in nats.
        log_probabilities [B, T], of each piece; 0 from num_tokens on.
        pieces [B, T] string, num_tokens [B] int32, of the text; "" from num_tokens on.
        truncated [B] bool, whether the text lost its end, or the context its beginning, to fit seq_len.
        error [B] string, "" or what is wrong with a row, whose probabilities are NaN then.
      fill_mask (text): what each `<mask>` in it may stand for, one piece; C, and K, are top_k.
        num_masks [B] int32; beyond them pieces are "" and probabilities 0.
        texts [B, C] string, the text with the likeliest fillings of all masks together that beam search
            finds, best first; the text as it is if it has no mask.
        probability [B, C], of each filling: the product of its probabilities; 0 if there are no more.
        log_probability [B, C], the same in nats, which many masks do not make 0; -inf if there are no more.
        pieces [B, C, M] string, of each filling.
        probabilities [B, C, M], of each piece given the text and the masks to its left: p(New) p(York | New).
        alone_probabilities [B, C, M], of the same pieces given the text alone: p(New) p(York).
        guesses [B, M, K] string, guess_probabilities [B, M, K]: the likeliest pieces for each mask, given the
            best filling of those to its left.
        alone_guesses, alone_guess_probabilities [B, M, K], the likeliest given the text alone.
        truncated, error [B], as above; a text with too many masks, or one with a mask that was cut off, stays
            as it is, with probability 0.
      generate (prompt [B] string; max_new_tokens, top_k, seed [B] int64; temperature, top_p [B] float32):
      what may come after a prompt, drawn at random (see generation.settings.Sampling):
        text [B] string, the prompt as the model read it, and what it wrote.
        continuation [B] string, what it wrote: the end of the text.
        log_probability [B], of the continuation, in nats, whatever the temperature.
        pieces [B, G] string, log_probabilities [B, G], num_tokens [B] int32, of the continuation.
        truncated [B], whether the prompt lost its beginning to fit seq_len; error [B], as above.
      search (prompt, max_new_tokens): the continuations that beam search finds, best first. The same outputs,
      each but truncated and error with an axis for the candidates after that of the batch.

    Args:
        seq_len: most tokens of a sequence, those that are written included.
        max_new_tokens: most tokens to write, or to fill, in a text; None: 64, at most half of seq_len.
        top_k: how many pieces and fillings fill_mask gives.
        beams: candidates of search; 1 takes the likeliest piece each time.
        layer: whose output the vectors are; -1: the last.
        forbid, repetition_penalty: of generate and search: see XLNetLanguageModel.generate.

    Example:
        >>> module = LanguageModelModule(model, tokenizer)
        >>> module.fill_mask(tf.constant(["I live in <mask> <mask>."]))["texts"]
    """

    def __init__(
        self,
        model: tf_keras.Model,
        tokenizer: XLNetTokenizer,
        *,
        seq_len: int = 512,
        max_new_tokens: int | None = None,
        top_k: int = 5,
        beams: int = 4,
        layer: int = -1,
        forbid: Sequence[str] = (),
        repetition_penalty: float = 1.0,
        **options,
    ):
        super().__init__(model, tokenizer, seq_len=seq_len, **options)
        if max_new_tokens is None:
            max_new_tokens = min(_NEW_TOKENS, seq_len // 2)
        for name, value, most in (
            ("max_new_tokens", max_new_tokens, seq_len - 1),
            ("top_k", top_k, min(settings.MOST_CANDIDATES, self.vocab_size)),
            ("beams", beams, min(settings.MOST_CANDIDATES, self.vocab_size)),
        ):
            if not 1 <= value <= most:
                raise UserError(f"{name} is {value}; expected 1 to {most}")
        settings.check_layer(layer, model.encoder.config.n_layer)
        self.max_new_tokens = max_new_tokens
        self.top_k = top_k
        self.beams = beams
        self.layer = layer
        self.forbid, self.repetition_penalty = list(forbid), repetition_penalty
        self._rules = settings.writing_rules(tokenizer, forbid, repetition_penalty)
        self._in_blocks = seq_len > AT_ONCE

    check_inputs = staticmethod(check_rows)  # a text that is too long has an `error`

    def example_rows(self):
        return _ROWS[EMBED]

    def forward(self, model, features):
        return embed(model.encoder, features, self.layer, self._in_blocks)

    def serve_tokens(self, features):
        vectors = self.run(features)
        return {"mean": vectors.mean, "cls": vectors.cls, "num_tokens": _num_tokens(features)}

    def graph_outputs(self, features):
        vectors = self.run(features)
        return {"mean": vectors.mean, "cls": vectors.cls}

    def graph_functions(self):
        """Adds the parts of LANGUAGE_MODEL_GRAPHS, which answer all that the signatures do."""
        parts = self.use(lambda model: dict(functions_of(model)))
        return {
            **super().graph_functions(),
            **{f"{LANGUAGE_MODEL_GRAPHS}/{name}": tuple(function) for name, function in parts.items()},
        }

    def serve(self, text):
        answers = self.embed(text)
        return {name: answers[name] for name in ("mean", "cls", "num_tokens", "truncated", "error")}

    def embed(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        texts, (is_right, too_long) = empty_oversized_texts(text=text)
        ids = self.texts.encode(texts["text"])
        features = self.pack(ids, padding="right")
        vectors = self.run(features)._asdict()
        pieces = self.texts.pieces(features["input_word_ids"])
        return {
            **{
                name: tf.where(tf.reshape(is_right, [-1] + [1] * (value.shape.rank - 1)), value, float("nan"))
                for name, value in vectors.items()
            },
            "pieces": tf.where(tf.cast(features["input_mask"], tf.bool), pieces, ""),
            "num_tokens": _num_tokens(features),
            "truncated": ids.row_lengths() > self.seq_len - 2,
            "error": first_fault([(is_right, too_long)]),
        }

    def score(
        self, text: tf.Tensor, context: tf.Tensor, order: tf.Tensor, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        readable, (is_short, too_long) = empty_oversized_texts(text=text, context=context)
        whole_texts, whole_contexts = (self.texts.encode(readable[name]) for name in ("text", "context"))
        texts = whole_texts[:, : self.seq_len]
        contexts = last_pieces(whole_contexts, self.seq_len - texts.row_lengths())
        lengths = contexts.row_lengths() + texts.row_lengths()
        features, is_scored = scoring.join_contexts(contexts, texts, self.padded_len(lengths))
        is_order = order[:, None] == list(scoring.ORDERS)  # [B, orders]
        ranks = tf.stack([scoring.order_ranks(is_scored, name, seed) for name in scoring.ORDERS], axis=1)
        ranks = tf.gather(ranks, tf.argmax(is_order, axis=1), batch_dims=1)
        found = self.use(
            lambda model: scoring.token_log_probabilities(model, features, is_scored, ranks, self._in_blocks)
        )
        is_right = tf.reduce_any(is_order, axis=1)
        found = tf.where((is_right & is_short)[:, None], found, float("nan"))
        expected = f"'; expected one of {', '.join(scoring.ORDERS)}"
        return {
            "log_probability": tf.where(
                is_short, tf.reduce_sum(tf.where(is_scored, found, 0.0), axis=1), float("nan")
            ),
            "log_probabilities": _dense(tf.ragged.boolean_mask(found, is_scored), 0.0),
            "pieces": _dense(self.texts.pieces(texts), ""),
            "num_tokens": tf.cast(texts.row_lengths(), tf.int32),
            "truncated": lengths < whole_contexts.row_lengths() + whole_texts.row_lengths(),
            "error": first_fault(
                [
                    (is_short, too_long),
                    (is_right, tf.strings.join(["order is '", self.texts.valid(order), expected])),
                ]
            ),
        }

    def fill_mask(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        texts, (is_short, too_long) = empty_oversized_texts(text=text)
        text = texts["text"]
        layout, truncated = gap_parsing.gaps(self.texts, text, self.seq_len)
        counts = tf.reduce_sum(tf.cast(layout.order >= 0, tf.int32), axis=1)
        asked = tf.cast(tf.strings.split(text, gap_parsing.MARK).row_lengths(), tf.int32) - 1
        lost = fault(
            f"the number of {gap_parsing.MARK} in the first {self.seq_len} tokens",
            counts,
            "all of the text's",
        )
        is_whole = counts == asked
        is_right = is_short & is_whole & (counts <= self.max_new_tokens)
        order = tf.where(is_right[:, None], layout.order, -1)[:, : self.max_new_tokens]
        layout = layout._replace(order=order, in_blocks=self._in_blocks)
        filled = self.use(lambda model: fill_jointly(model, layout, beams=self.top_k, guesses=self.top_k))
        fills, guesses, alone = filled.fills, filled.guesses, filled.guesses_apart
        texts = self.texts.decode(gap_parsing.fill_in(layout, fills.tokens))
        texts = tf.reshape(texts, tf.shape(fills.tokens)[:2])
        is_filled = (counts > 0) & is_right
        wrong = fault(
            f"the number of {gap_parsing.MARK} in the text", counts, f"at most {self.max_new_tokens}"
        )
        return {
            "num_masks": counts,
            "texts": tf.where(is_filled[:, None], texts, self.texts.valid(text)[:, None]),
            "probability": tf.where(is_right[:, None], tf.exp(fills.totals), 0.0),
            "log_probability": tf.where(is_right[:, None], fills.totals, float("-inf")),
            "pieces": self._pieces(fills.tokens),
            "probabilities": _probabilities(fills.tokens, fills.log_probs),
            "alone_probabilities": _probabilities(fills.tokens, filled.apart),
            "guesses": self._pieces(guesses.tokens),
            "guess_probabilities": _probabilities(guesses.tokens, guesses.log_probs),
            "alone_guesses": self._pieces(alone.tokens),
            "alone_guess_probabilities": _probabilities(alone.tokens, alone.log_probs),
            "truncated": truncated,
            "error": first_fault([(is_short, too_long), (is_whole, lost), (is_right, wrong)]),
        }

    def generate(
        self,
        prompt: tf.Tensor,
        max_new_tokens: tf.Tensor,
        temperature: tf.Tensor,
        top_k: tf.Tensor,
        top_p: tf.Tensor,
        seed: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        checks = [
            empty_oversized_texts(prompt=prompt)[1],
            self._length_check(max_new_tokens),
            (
                (temperature >= 0) & (temperature <= settings.HOTTEST),
                fault("temperature", temperature, f"0, to take the likeliest piece, to {settings.HOTTEST}"),
            ),
            (top_k >= 0, fault("top_k", top_k, "0, for all pieces, or more")),
            ((top_p > 0) & (top_p <= 1), fault("top_p", top_p, "more than 0, to 1")),
        ]
        error = first_fault(checks)
        options = settings.Sampling(
            seeds=seed,
            temperature=tf.where((error == "") & (temperature >= settings.COLDEST), temperature, 0.0),
            top_k=tf.cast(tf.clip_by_value(top_k, 0, self.vocab_size), tf.int32),
            top_p=top_p,
        )
        answers = self._continue(
            prompt,
            max_new_tokens,
            error,
            lambda model, layout: decoding_loop.sample(model, layout, options, rules=self._rules),
        )
        return {name: value if name in _OF_ROWS else value[:, 0] for name, value in answers.items()}

    def search(self, prompt: tf.Tensor, max_new_tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        error = first_fault([empty_oversized_texts(prompt=prompt)[1], self._length_check(max_new_tokens)])
        return self._continue(
            prompt,
            max_new_tokens,
            error,
            lambda model, layout: decoding_loop.search(model, layout, self.beams, rules=self._rules),
        )

    def _length_check(self, max_new_tokens: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        is_right = (max_new_tokens >= 1) & (max_new_tokens <= self.max_new_tokens)
        return is_right, fault("max_new_tokens", max_new_tokens, f"1 to {self.max_new_tokens}")

    def _continue(
        self,
        prompt: tf.Tensor,
        max_new_tokens: tf.Tensor,
        error: tf.Tensor,
        write: Callable[[tf_keras.Model, TextLayout], decoding_loop.DecodedTokens],
    ) -> dict[str, tf.Tensor]:
        """Continues prompts [B] by at most `max_new_tokens` [B] pieces, those without an `error` [B]."""
        new_tokens = tf.where(error == "", max_new_tokens, 0)
        most = tf.maximum(tf.cast(tf.reduce_max(new_tokens), tf.int32), 1)
        whole = self.texts.encode(empty_oversized_texts(prompt=prompt)[0]["prompt"])
        kept = last_pieces(whole, self.seq_len - new_tokens)
        lengths = tf.cast(kept.row_lengths(), tf.int32)
        layout = continuation(kept.to_tensor(PAD_ID), lengths, tf.cast(new_tokens, tf.int32), most)
        layout = layout._replace(in_blocks=self._in_blocks)
        written = self.use(lambda model: write(model, layout))
        shape = tf.shape(written.tokens)[:2]  # B, C
        counts = tf.reduce_sum(tf.cast(written.tokens != PAD_ID, tf.int32), axis=2)
        new = tf.RaggedTensor.from_tensor(tf.reshape(written.tokens, [-1, most]), tf.reshape(counts, [-1]))
        before = tf.gather(kept, tf.repeat(tf.range(shape[0]), shape[1]))
        text = self.texts.decode(tf.concat([before, new], axis=1))
        begin, end = (tf.strings.length(values) for values in (self.texts.decode(before), text))
        return {
            "text": tf.reshape(text, shape),
            "continuation": tf.reshape(tf.strings.substr(text, tf.minimum(begin, end), end), shape),
            "log_probability": written.totals,
            "pieces": self._pieces(written.tokens),
            "log_probabilities": written.log_probs,
            "num_tokens": counts,
            "truncated": kept.row_lengths() < whole.row_lengths(),
            "error": error,
        }

    def _pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Spells pieces of any shape, and PAD as ""."""
        return tf.where(ids == PAD_ID, "", self.texts.pieces(ids))

    def signatures(self):
        own = {name: _row_signature(getattr(self, name), row) for name, row in _ROWS.items()}
        return {**super().signatures(), **own}

    def example_inputs(self):
        own = {
            name: {
                key: np.array([value], _SPECS[type(value)].dtype.as_numpy_dtype) for key, value in row.items()
            }
            for name, row in _ROWS.items()
        }
        return {**super().example_inputs(), **own}


def _row_signature(function, row: Mapping[str, str | int | float]):
    """Traces a function of inputs [B] that have the names and types of a row."""
    specs = {name: _SPECS[type(value)] for name, value in row.items()}
    return signature(lambda **inputs: function(**check_rows(inputs)), **specs)


def _num_tokens(features):
    return tf.reduce_sum(tf.cast(features["input_mask"], tf.int32), axis=1)


def _probabilities(tokens: tf.Tensor, log_probs: tf.Tensor) -> tf.Tensor:
    """Returns probabilities of tokens of any shape, 0 for PAD."""
    return tf.where(tokens == PAD_ID, 0.0, tf.exp(log_probs))


def _dense(values: tf.RaggedTensor, default) -> tf.Tensor:
    """Pads rows to the longest, at least to 1, as some clients cannot handle empty lists."""
    return values.to_tensor(default, shape=[-1, tf.maximum(values.bounding_shape(axis=1), 1)])
