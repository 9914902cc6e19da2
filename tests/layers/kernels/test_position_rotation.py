"""The frequencies of rotated positions; that models of them equal all others, tests/models shows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.profiles import examples
from xlnet_tf.layers.kernels.position_rotation import fewer_frequencies


@given(d_model=st.integers(1, 256).map(lambda half: 2 * half), reach=st.integers(1, 700))
@examples(10, 200)
def test_few_frequencies_make_all_sinusoids(d_model, reach):
    frequencies, sines, cosines = fewer_frequencies(d_model, reach)
    distances = np.arange(-reach, reach + 1)[:, None].astype(np.float64)
    wanted = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    for wave, weights in ((np.sin, sines), (np.cos, cosines)):
        found = wave(distances * frequencies) @ weights
        # What rounding frequencies to float32 does to the angle of the largest distance, and a little.
        assert np.abs(found - wave(distances * wanted)).max() < 6e-8 * reach + 1e-5
        assert np.abs(weights).max() < 2


def test_few_frequencies_are_few():
    assert len(fewer_frequencies(1024, 512)[0]) <= 512 / 4
    assert len(fewer_frequencies(1024, 128)[0]) < 512 / 6
