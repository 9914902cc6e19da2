#!/usr/bin/env bash
# One would guess: conllu reads a CoNLL-U file and serializes it without loss.
# What is so: Of MISC it drops what follows a second '=', and of a feature given twice the first value.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages conllu==6.0.0
PYTHONPATH=packages python3 - <<'END'
import importlib.metadata

import conllu

print("conllu", importlib.metadata.version("conllu"))
line = "1\ta\tb\tX\t_\tCase=Nom|Case=Acc\t0\troot\t_\tRef=https://x.org/?q=1|SpaceAfter=No\n\n"
[sentence] = conllu.parse(line)
again = sentence.serialize()
print(line.strip(), "becomes", again.strip())
assert sentence[0]["misc"]["Ref"] == "https://x.org/?q" and sentence[0]["feats"] == {"Case": "Acc"}
assert again != line
END
