"""How TensorFlow computes in a process of a command, unless OpenVINO answers without it."""

import contextlib

from xlnet_tf.serving.openvino.folder import find_folder


def run_eagerly(path: str, eagerly: bool = True) -> None:
    """Computes without graphs, which take longer to trace for a few texts, unless OpenVINO computes."""
    if find_folder(path) is None:
        import tensorflow as tf

        tf.config.run_functions_eagerly(eagerly)


def use_threads(path: str, threads: int) -> None:
    """Limits TensorFlow's threads, unless it already computes; then this process keeps its own.

    A model for OpenVINO is given the number as it is opened.
    """
    if find_folder(path) is None:
        import tensorflow as tf

        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
