"""What a language model needs computed, whatever runtime computes it: arrays in, arrays out.

generation.graphs has those of TensorFlow, openvino.py those of what export wrote for OpenVINO.

Shapes: B batch, T tokens, G tokens to write, C candidates of a text, K guesses.
"""

from typing import Any, Protocol

import numpy as np

from xlnet_tf.generation.results import Vectors
from xlnet_tf.generation.settings import Sampling, WritingRules


class EncoderEngine(Protocol):
    """The numbers of an encoder."""

    n_layer: int
    d_model: int
    longest: int  # most tokens of a text, those that are written included

    def embed(self, ids: np.ndarray, mask: np.ndarray, type_ids: np.ndarray, layer: int) -> Vectors:
        """Reads texts [A SEP CLS], padded on the left: see embedding.embed."""


class Engine(EncoderEngine, Protocol):
    """The numbers of a language model.

    Ids are int32, padded on the right with PAD_ID. What is written has tokens [B, C, G] int32, in the order
    of writing, PAD_ID after the last, and log_probs [B, C, G] float32 in nats. `order` is that of Gaps.
    """

    vocab_size: int

    def sample(
        self,
        ids: np.ndarray,
        lengths: np.ndarray,
        new_tokens: int,
        settings: Sampling,
        stop_ids: np.ndarray,
        rules: WritingRules,
    ) -> Any:
        """Continues prompts [B, T] of these lengths [B]: see decoding_loop.sample."""

    def search(
        self,
        ids: np.ndarray,
        lengths: np.ndarray,
        new_tokens: int,
        beams: int,
        stop_ids: np.ndarray,
        rules: WritingRules,
    ) -> Any:
        """Continues prompts by beam search: see decoding_loop.search."""

    def fill_jointly(self, ids: np.ndarray, is_context: np.ndarray, order: np.ndarray, top_k: int) -> Any:
        """Fills gaps by beam search: see infilling.Filled."""

    def infill(
        self,
        ids: np.ndarray,
        is_context: np.ndarray,
        order: np.ndarray,
        settings: Sampling,
        easiest_first: bool,
    ) -> tuple[Any, np.ndarray]:
        """Fills gaps by sampling; returns what was written, and the order of filling."""

    def score(
        self, ids: np.ndarray, mask: np.ndarray, is_scored: np.ndarray, ranks: np.ndarray
    ) -> np.ndarray:
        """Returns the log-probabilities of tokens [B, T]: see scoring.token_log_probabilities."""
