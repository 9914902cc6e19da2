#!/usr/bin/env bash
# One would guess: A document of grade -1 (spam) is not relevant, so ranking it first lowers every metric that 0 lowers.
# What is so: For bpref it counts as not judged: with -1 the ranking is perfect, with 0 it is 0.5; nDCG and MAP do not change.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages numpy==2.4.6 pytrec_eval-terrier==0.5.11
PYTHONPATH=packages python3 - <<'END'
import importlib.metadata

import pytrec_eval

print("pytrec_eval-terrier", importlib.metadata.version("pytrec_eval-terrier"))
ranking = {"query": {"spam": 3.0, "best": 2.0, "good": 1.0, "other": 0.5}}
found = {}
for grade in (-1, 0):
    judged = {"query": {"best": 2, "spam": grade, "other": 0, "good": 1}}
    found[grade] = pytrec_eval.RelevanceEvaluator(judged, {"bpref", "ndcg", "map"}).evaluate(ranking)["query"]
    print(grade, found[grade])
assert (found[-1]["bpref"], found[0]["bpref"]) == (1.0, 0.5)
assert found[-1]["ndcg"] == found[0]["ndcg"] and found[-1]["map"] == found[0]["map"]
END
