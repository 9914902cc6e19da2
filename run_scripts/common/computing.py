"""How TensorFlow computes in a process of a command, unless OpenVINO answers without it."""

import contextlib
from typing import TYPE_CHECKING

from xlnet_tf.serving.answers.source import check_type_is_kept
from xlnet_tf.serving.openvino.folder import find_folder

if TYPE_CHECKING:
    from xlnet_tf.generation.language_model import XLNetLanguageModel


def load_language_model(path: str, dtype: str = "float32", threads: int = 0) -> "XLNetLanguageModel":
    """Loads a language model to compute in a type; `threads` are those of OpenVINO, see `use_threads`."""
    from xlnet_tf.generation.language_model import XLNetLanguageModel

    if find_folder(path):
        check_type_is_kept(path, dtype)
        return XLNetLanguageModel.from_pretrained(path, threads=threads)
    from xlnet_tf.serving.graph.weights import policy

    with policy(dtype):
        return XLNetLanguageModel.from_pretrained(path)


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
