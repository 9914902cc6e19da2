#!/usr/bin/env bash
# One would guess: FastSentencepieceTokenizer gives the ids of SentencepieceTokenizer in the same release, only faster.
# What is so: Where two ways to split a word have equal scores, it takes the other one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages tensorflow==2.20.0 tensorflow-text==2.20.1 tf_keras==2.20.1 sentencepiece==0.2.1
PYTHONPATH=packages python3 - <<'END'
import tensorflow_text as text
from sentencepiece import sentencepiece_model_pb2

Piece = sentencepiece_model_pb2.ModelProto.SentencePiece
proto = sentencepiece_model_pb2.ModelProto()
for name, kind in (("<unk>", Piece.UNKNOWN), ("<s>", Piece.CONTROL), ("</s>", Piece.CONTROL)):
    proto.pieces.add(piece=name, score=0, type=kind)
for name, score in (("\u2581", -2.7), ("a", -3.3), ("aa", -5.9), ("b", -4.1), ("bb", -6.3), ("c", -5.7), ("cc", -9.4)):
    proto.pieces.add(piece=name, score=score, type=Piece.NORMAL)
proto.trainer_spec.model_type = 1
model = proto.SerializeToString()
texts = [before + letter * count for letter in "abc" for count in range(3, 40, 2) for before in ("", "a ", "b c ")]
plain = text.SentencepieceTokenizer(model).tokenize(texts).to_list()
fast = text.FastSentencepieceTokenizer(model).tokenize(texts).to_list()
different = [(read, a, b) for read, a, b in zip(texts, plain, fast) if a != b]
print("tensorflow-text", text.__version__, f"{len(different)} of {len(texts)} texts differ, such as:", *different[0])
assert different
assert all(sorted(a) == sorted(b) for a, b in zip(plain, fast))  # the same pieces in another order
END
