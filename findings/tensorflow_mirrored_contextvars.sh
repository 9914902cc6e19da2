#!/usr/bin/env bash
# One would guess: a contextvars setting around strategy.run holds in the replica function, as it does with the default strategy.
# What is so: MirroredStrategy runs it on a thread with an empty context, even on one device; OneDeviceStrategy keeps the context.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages tensorflow==2.20.0
TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES= PYTHONPATH=packages python3 - <<'END'
import contextvars

import tensorflow as tf

setting = contextvars.ContextVar("setting", default="default")


def seen(strategy):
    def replica(x):
        found.append(setting.get())
        return x + 1

    found = []
    token = setting.set("set")
    try:
        tf.function(lambda x: strategy.run(replica, (x,)), autograph=False)(tf.constant(1))
    finally:
        setting.reset(token)
    return found


print("tensorflow", tf.__version__)
results = {
    "default": seen(tf.distribute.get_strategy()),
    "one device": seen(tf.distribute.OneDeviceStrategy("/cpu:0")),
    "mirrored, one device": seen(tf.distribute.MirroredStrategy(["/cpu:0"])),
}
for name, found in results.items():
    print(f"{name}: {found}")
assert set(results["default"]) == set(results["one device"]) == {"set"}
assert set(results["mirrored, one device"]) == {"default"}
END
