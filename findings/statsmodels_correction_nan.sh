#!/usr/bin/env bash
# One would guess: multipletests leaves a NaN out: the other p values are corrected as if it were not there.
# What is so: Holm counts it as a test and corrects too much; Benjamini-Hochberg makes all values NaN.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages numpy==2.4.6 statsmodels==0.15.0
PYTHONPATH=packages python3 - <<'END'
import numpy as np
import statsmodels
from statsmodels.stats.multitest import multipletests

print("statsmodels", statsmodels.__version__)
values = [0.01, np.nan, 0.04]
holm, hochberg = (multipletests(values, method=method)[1] for method in ("holm", "fdr_bh"))
without = multipletests([0.01, 0.04], method="holm")[1]
print("Holm", holm, "without the NaN", without, "Benjamini-Hochberg", hochberg)
np.testing.assert_allclose(holm, [0.03, np.nan, 0.08])
np.testing.assert_allclose(without, [0.02, 0.04])
assert np.isnan(hochberg).all()
END
