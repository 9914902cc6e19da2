"""The inputs of a signature's graph: texts and lists of texts, also as tf.Examples, and their faults."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from xlnet_tf.serving.answers.signatures import MOST_TEXT_BYTES

Signature = tf.types.experimental.ConcreteFunction
Texts = tf.Tensor | tf.RaggedTensor


def signature(function, **specs: tf.TensorSpec) -> Signature:
    """Traces a function from inputs by name to a dict of tensors."""

    def checked(**inputs):
        # A server feeds the graph what comes, whatever the specs say; the error names the input.
        return function(**{name: tf.ensure_shape(inputs[name], spec.shape) for name, spec in specs.items()})

    # No AutoGraph: nothing here needs it, and it can take one lambda of a file for another.
    return tf.function(checked, autograph=False).get_concrete_function(
        **{name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()}
    )


def check_rows(inputs: dict[str, Texts]) -> dict[str, Texts]:
    """Adds checks that all inputs have equally many rows; the error names the inputs."""
    (first, expected), *others = inputs.items()
    checks = [
        tf.debugging.assert_equal(
            _rows(value), _rows(expected), f"{name} has another number of rows than {first}"
        )
        for name, value in others
    ]
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in inputs.items()}


def _rows(value: Texts) -> tf.Tensor:
    return value.nrows() if isinstance(value, tf.RaggedTensor) else tf.shape(value, tf.int64)[0]


def lists(values: Texts) -> tuple[tf.Tensor, tf.Tensor]:
    """Pads lists of texts, [B, C] or ragged [B, (C)] as of tf.Examples, to equal length.

    Returns the lists [B, C], with "" after the last text of each, and which of them are texts, [B, C] bool.
    """
    if not isinstance(values, tf.RaggedTensor):
        return values, tf.ones(tf.shape(values), tf.bool)
    return values.to_tensor(""), tf.sequence_mask(values.row_lengths())


def parse_examples(examples: tf.Tensor, specs: Mapping[str, tf.TensorSpec]) -> dict[str, Texts]:
    """Reads inputs from serialized tf.Examples [B], which have a bytes feature for each input.

    A missing text is an error, a missing list is empty; lists are ragged.
    """
    with tf.device("/CPU:0"):
        features = {
            name: tf.io.FixedLenFeature([], tf.string)
            if spec.shape.rank == 1
            else tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int64)
            for name, spec in specs.items()
        }
        return tf.io.parse_example(examples, features)


def serialized_example(row: Mapping[str, str | Sequence[str]]) -> bytes:
    """Returns a tf.Example with a feature for each value of a row."""
    feature = {
        name: tf.train.Feature(
            bytes_list=tf.train.BytesList(
                value=[text.encode() for text in ([value] if isinstance(value, str) else value)]
            )
        )
        for name, value in row.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def fault(name: str, values: tf.Tensor, expected: str) -> tf.Tensor:
    """Returns messages about wrong values [B]."""
    return tf.strings.join([f"{name} is ", tf.strings.as_string(values), f"; expected {expected}"])


def empty_oversized_texts(**texts: tf.Tensor) -> tuple[dict[str, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Empties texts, [B] string, of more than MOST_TEXT_BYTES, which would use up the server's memory."""
    sizes = {name: tf.strings.length(values) for name, values in texts.items()}
    is_right = tf.reduce_all([size <= MOST_TEXT_BYTES for size in sizes.values()], axis=0)
    named = [tf.strings.join([f"{name} has ", tf.strings.as_string(size)]) for name, size in sizes.items()]
    message = tf.strings.join(named, " bytes, ")
    message = tf.strings.join([message, f" bytes; expected at most {MOST_TEXT_BYTES}"])
    return {name: tf.where(is_right, values, "") for name, values in texts.items()}, (is_right, message)


def first_fault(checks: Sequence[tuple[tf.Tensor, tf.Tensor | str]]) -> tf.Tensor:
    """Returns the first fault of each row, [B] string, "" if there is none, from (is_right [B], message).

    An error would make all requests fail that the server put into the batch.
    """
    found = tf.fill(tf.shape(checks[0][0]), "")
    for is_right, message in reversed(checks):
        found = tf.where(is_right, found, message)
    return found
