#!/usr/bin/env bash
# One would guess: tf.nn.moments(x, axes=-1) and axes=[-1] convert alike; both are one axis, and TensorFlow's results are equal.
# What is so: Normalization over a scalar axis ends convert_model with "Expected 1D tensor for the 'axes' input" of a fused MVN.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages tensorflow==2.20.0 openvino==2026.4.1
TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES= PYTHONPATH=packages python3 - <<'END'
import openvino
import tensorflow as tf

print("openvino", openvino.__version__, "tensorflow", tf.__version__)
gamma, beta = tf.constant([1.0, 2.0, 3.0, 4.0]), tf.constant([0.1, 0.2, 0.3, 0.4])


def converted(axes):
    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def normalize(x):
        mean, variance = tf.nn.moments(x, axes=axes, keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-12)

    x = tf.constant([[1.0, 2.0, 4.0, 8.0]])
    try:
        model = openvino.convert_model(normalize)
    except Exception as error:
        return normalize(x), [line for line in str(error).splitlines() if line][-1]
    return normalize(x), openvino.compile_model(model, "CPU")(x.numpy())[0]


(expected, of_scalar), (same, of_list) = converted(-1), converted([-1])
print("axes=-1:", of_scalar)
print("axes=[-1]:", of_list, "TensorFlow:", same.numpy())
assert (expected.numpy() == same.numpy()).all()
assert isinstance(of_scalar, str) and "axes" in of_scalar, of_scalar
assert abs(of_list - same.numpy()).max() < 1e-4
END
