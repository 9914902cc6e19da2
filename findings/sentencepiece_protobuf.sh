#!/usr/bin/env bash
# One would guess: sentencepiece reads its own model files with any protobuf that pip lets it be installed with.
# What is so: Its messages need protobuf 7.36.1, which it does not require: TensorFlow 2.20 environments have 6, and the import raises.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages sentencepiece==0.2.3 protobuf==6.33.6
PYTHONPATH=packages python3 - <<'END'
import google.protobuf
import sentencepiece

print("sentencepiece", sentencepiece.__version__, "protobuf", google.protobuf.__version__)
try:
    from sentencepiece import sentencepiece_model_pb2  # noqa: F401
except google.protobuf.runtime_version.VersionError as error:
    print(type(error).__name__, str(error)[:150])
else:
    raise SystemExit("the import works now")
END
