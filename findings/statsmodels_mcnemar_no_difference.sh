#!/usr/bin/env bash
# One would guess: McNemar's test of two systems that never disagree has p = 1, or is refused.
# What is so: The chi-squared form, corrected by default, gives p = 0: a certain difference. The exact form gives 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages numpy==2.4.6 statsmodels==0.15.0
PYTHONPATH=packages python3 - <<'END'
import warnings

import statsmodels
from statsmodels.stats.contingency_tables import mcnemar

warnings.simplefilter("ignore")
print("statsmodels", statsmodels.__version__)
same = [[10, 0], [0, 5]]  # both right, both wrong, and no text on which one alone is right
found = {exact: float(mcnemar(same, exact=exact).pvalue) for exact in (True, False)}
print("p: exact", found[True], "chi-squared", found[False])
assert found == {True: 1.0, False: 0.0}
END
