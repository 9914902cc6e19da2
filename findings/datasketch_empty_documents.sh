#!/usr/bin/env bash
# One would guess: A MinHash of nothing, as of a document shorter than the n-grams, is like no other.
# What is so: Two of them have similarity 1, and MinHashLSH returns one for the other: all short documents count as duplicates.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages numpy==2.4.6 datasketch==2.0.0
PYTHONPATH=packages python3 - <<'END'
import importlib.metadata

from datasketch import MinHash, MinHashLSH

print("datasketch", importlib.metadata.version("datasketch"))


def minhash(text, size=5):
    words = text.split()
    found = MinHash()
    for begin in range(len(words) - size + 1):
        found.update(" ".join(words[begin : begin + size]).encode())
    return found


first, second = minhash("A fine film ."), minhash("Not found")
index = MinHashLSH(threshold=0.9)
index.insert("first", first)
print("similarity", first.jaccard(second), "query", index.query(second), "count", first.count())
assert first.jaccard(second) == 1 and index.query(second) == ["first"]
END
