"""What the weights of a trained model look like, whatever it was trained on."""

from collections.abc import Iterator

import numpy as np

from xlnet_tf.checkpoints import names
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.text.special_tokens import SYMBOLS
from xlnet_tf.text.tokenizer import XLNetTokenizer

LEAST_CORRELATION = 0.1
LEAST_STRUCTURE = 1.03
MOST_SCALE = 8.0
_LARGE = 256  # rows and columns from which a random matrix' largest singular value hardly varies
_EMBEDDING = "word_embedding/embeddings"


class Statistics:
    """Statistics of weights; each array is read once.

    Args:
        arrays: all weights of a pretrained model by our names.
        tokenizer: of the model.

    Attributes:
        constant: names of arrays whose numbers are all equal, or all zero in a row: no training leaves such.
        repeated: names of arrays that equal one of another layer.
        unscaled: names of kernels whose numbers are MOST_SCALE times larger or smaller than usual for their
            kind.
        large: how many kernels are large enough to tell structure from chance.
        unstructured: names of those that have no more structure than random numbers.
        untrained_norms: names of LayerNorm gains that are all 1, or not mostly positive.
        correlation: of how frequent pieces are (by the tokenizer) with the norms of their embedding and their
            lm_bias: the larger of both rank correlations, without its sign.
    """

    def __init__(self, arrays: Arrays, tokenizer: XLNetTokenizer):
        self.constant, self.repeated, self.untrained_norms, self.unstructured = [], [], [], []
        self.large = 0
        scales, digests, frequent = {}, {}, []
        for name in arrays:
            value = arrays[name]
            has_hole = value.ndim > 1 and not value.any(axis=-1).all()  # as an interrupted download leaves it
            if has_hole or (value.size > 1 and np.ptp(value) == 0):
                self.constant.append(name)
            if name.endswith("norm/gamma") and (np.all(value == 1) or np.mean(value > 0) < 0.9):
                self.untrained_norms.append(name)
            layer, _, kind = name.partition("/")
            if layer.startswith("layer_") and value.ndim > 1:
                scales.setdefault(kind, {})[name] = float(np.linalg.norm(value) / np.sqrt(value.size))
                other = digests.setdefault(hash(value.tobytes()), name)
                self.repeated += [name] * (other != name)
            if name.endswith("/kernel") and min(len(value), value.size // len(value)) >= _LARGE:
                self.large += 1
                self.unstructured += [name] * (structure(value) < LEAST_STRUCTURE)
            if name == _EMBEDDING:
                frequent.append(np.linalg.norm(value, axis=1))
            elif name == names.LANGUAGE_MODEL_HEAD:
                frequent.append(value)
        self.unscaled = list(_outliers(scales))
        scores = tokenizer.piece_table.scores
        self.correlation = max(abs(_rank_correlation(scores, values)) for values in frequent)


def structure(kernel: np.ndarray) -> float:
    """Compares a kernel's largest singular value with that of random numbers of its size: about 1 if random.

    Source: Marchenko and Pastur's law: random numbers of variance 1 have about sqrt(rows) + sqrt(columns).
    """
    matrix = kernel.reshape(len(kernel), -1).astype(np.float32)
    if not np.any(matrix):
        return 0.0
    vector = np.random.default_rng(0).normal(size=matrix.shape[1]).astype(np.float32)
    for _ in range(30):  # power iteration; a bound from below, which random matrices come close to
        vector = matrix.T @ (matrix @ vector)
        vector /= np.linalg.norm(vector)
    edge = np.sqrt(np.mean(np.square(matrix))) * (np.sqrt(matrix.shape[0]) + np.sqrt(matrix.shape[1]))
    return float(np.linalg.norm(matrix @ vector) / edge)


def _outliers(scales: dict[str, dict[str, float]]) -> Iterator[str]:
    for by_name in scales.values():
        usual = np.median(list(by_name.values()))
        for name, scale in by_name.items():
            if not usual / MOST_SCALE <= scale <= usual * MOST_SCALE:
                yield name


def _rank_correlation(scores: np.ndarray, values: np.ndarray) -> float:
    """Returns Spearman's correlation over the pieces that are not special symbols."""
    ranks = [np.argsort(np.argsort(each[len(SYMBOLS) :])) for each in (scores, values)]
    return float(np.corrcoef(*ranks)[0, 1])
