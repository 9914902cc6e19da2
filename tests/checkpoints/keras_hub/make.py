"""Makes backbone.keras and answers.npz with KerasHub 0.32.0 (Keras 3.15.1, JAX 0.10.2).

pip install keras-hub==0.32.0 jax==0.10.2 && KERAS_BACKEND=jax python make.py
"""

import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).parent
SIZES = {"vocabulary_size": 30, "num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
TOKENS, SEGMENTS = [9, 10, 11, 4, 12, 4, 3], [0, 0, 0, 0, 1, 1, 2]
ROWS = {  # token ids, and segments
    "plain": (TOKENS, SEGMENTS),
    "left": ([5, 5, *TOKENS], [0, 0, *SEGMENTS]),
    "right": ([*TOKENS, 5, 5, 5], [*SEGMENTS, 0, 0, 0]),
}


def main() -> None:
    import keras_hub

    backbone = keras_hub.models.XLNetBackbone(**SIZES)
    rng = np.random.RandomState(0)
    for weight in backbone.weights:
        weight.assign(0.3 * rng.randn(*weight.shape) + ("gamma" in weight.path))
    answers = {}
    for name, (ids, segments) in ROWS.items():
        ids = np.array([ids])
        inputs = {"token_ids": ids, "padding_mask": (ids != 5) * 1, "segment_ids": np.array([segments])}
        answers[name] = np.asarray(backbone(inputs))[0]
    backbone.save(FOLDER / "backbone.keras")
    np.savez(FOLDER / "answers.npz", **answers)


if __name__ == "__main__":
    main()
