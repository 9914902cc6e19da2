#!/usr/bin/env bash
# One would guess: ZstdDecompressor.decompress reads a whole .zst file, as gzip.decompress reads all members.
# What is so: It returns the first frame and drops the rest without an error; stream_reader of the same release reads all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages zstandard==0.25.0
PYTHONPATH=packages python3 - <<'END'
import zstandard

print("zstandard", zstandard.__version__)
frames = b"".join(zstandard.ZstdCompressor().compress(text) for text in (b"one\n", b"two\n"))
whole = zstandard.ZstdDecompressor().decompress(frames)
stream = zstandard.ZstdDecompressor().stream_reader(frames).read()
print("decompress", whole, "stream_reader", stream)
assert whole == b"one\n" and stream == b"one\ntwo\n"
END
