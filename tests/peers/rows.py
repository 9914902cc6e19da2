"""Whether rows get the same answers alone and in a batch, padded to the longest."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tf_keras

from tests.helpers.models import original
from tests.peers.programs import ours
from tests.peers.reading import largest
from xlnet_tf import XLNetClassifier, XLNetConfig, XLNetEncoder

PAD = 5
SUMMARIES = ("last", "first", "mean")
_CLOSE = 1e-4  # answers that differ by less count as the same


def batches() -> list[dict[str, list]]:
    """Returns rows of different lengths as one batch, padded on the left, and then each row alone."""
    rng = np.random.default_rng(0)
    rows = [[*rng.integers(9, 90, rng.integers(2, 30)).tolist(), 4, 3] for _ in range(24)]
    length = max(map(len, rows))

    def batch(rows: Sequence[Sequence[int]], length: int) -> dict[str, list]:
        padding = [length - len(row) for row in rows]
        return {
            "ids": [[PAD] * count + list(row) for count, row in zip(padding, rows)],
            "mask": [[0] * count + [1] * len(row) for count, row in zip(padding, rows)],
            "segments": [[3] * count + [0] * (len(row) - 1) + [2] for count, row in zip(padding, rows)],
        }

    return [batch(rows, length), *(batch([row], len(row)) for row in rows)]


def compare(answers: Sequence[Any]) -> list[str]:
    """Returns cells: rows that are answered alone as in a batch, the largest difference, that of texts."""
    together, alone = answers[0], [np.array(answer[0]) for answer in answers[1:]]
    together = [
        np.array(row)[-len(single) :] if single.ndim == 2 else np.array(row)
        for row, single in zip(together, alone, strict=True)
    ]
    differences = [largest(*pair) for pair in zip(together, alone)]
    ends = np.array([single[-1] if single.ndim == 2 else single for single in alone])
    others = np.abs(ends - np.roll(ends, 1, 0)).max(1)
    same = sum(difference < _CLOSE for difference in differences)
    return [f"{same} of {len(alone)}", f"{max(differences):.1g}", f"{np.median(others):.1g}"]


def of_ours() -> Iterator[list[str]]:
    """Yields the rows of this project, and of the original by its numbers in tests/golden."""
    made = [ours.features(batch) for batch in batches()]
    config = XLNetConfig(n_token=90, n_layer=2, d_model=16, n_head=2, d_head=8, d_inner=20)
    tf_keras.utils.set_random_seed(0)
    encoder = XLNetEncoder(config, initializer_range=0.4)
    yield ["this project", "vectors", *compare([encoder(batch)["sequence_output"].numpy() for batch in made])]
    for summary in SUMMARIES:
        model = XLNetClassifier(encoder, 3, summary=summary)
        cells = compare([model(batch).numpy() for batch in made])
        yield ["this project", f"classifier, `summary={summary}`", *cells]
    case, _ = original.load_case("enc_finetune")
    features, model = original.encoder_features(case), original.encoder()
    lengths = features["input_mask"].sum(1).astype(int)
    kept = np.flatnonzero(lengths)
    alone = [{name: rows[row : row + 1, -lengths[row] :] for name, rows in features.items()} for row in kept]
    answers = [case["output"].transpose(1, 0, 2)[kept]]
    answers += [model(single)["sequence_output"].numpy() for single in alone]
    yield ["original (its batch, our single rows)", "vectors", *compare(answers)]
