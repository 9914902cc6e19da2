#!/usr/bin/env bash
# One would guess: After CheckpointManager.save returns PATH, latest_checkpoint is PATH, with asynchronous checkpoints, too.
# What is so: It is the checkpoint before, until sync(): a restart hook or an evaluation that asks takes the older one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages tensorflow==2.20.0
PYTHONPATH=packages python3 - <<'END'
import os
import tempfile

import tensorflow as tf

print("tensorflow", tf.__version__)
variable = tf.Variable(tf.zeros(4_000_000))
checkpoint = tf.train.Checkpoint(variable=variable)
manager = tf.train.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=2)
options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
for _ in range(3):
    saved = manager.save(options=options)
latest, there = manager.latest_checkpoint, os.path.exists(f"{saved}.index")
print("saved", os.path.basename(saved), "latest", os.path.basename(latest), "is there:", there)
checkpoint.sync()
print("after sync", os.path.basename(manager.latest_checkpoint))
assert (os.path.basename(saved), os.path.basename(latest)) == ("ckpt-3", "ckpt-2")
assert manager.latest_checkpoint == saved
END
