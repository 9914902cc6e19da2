"""What the memory shows to the model, and what a checkpoint keeps of it."""

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.training.memory import Memory


def filled(rows=2, dtype=tf.float32):
    memory = Memory(n_layer=1, rows=rows, memory_len=4, d_model=3, dtype=dtype)
    content = tf.random.stateless_normal([1, rows, 4, 3], [1, 2])
    memory.write(content, tf.ones([rows, 4], tf.bool))
    return memory, tf.cast(tf.cast(content, dtype), tf.float32).numpy()


def test_memory_is_hidden_until_it_is_written_and_after_a_reset():
    continues = tf.constant([False, False])
    assert not Memory(1, 2, 4, 3).read(continues)["memory_mask"].numpy().any()
    memory, content = filled()
    inputs = memory.read(continues)
    np.testing.assert_array_equal(inputs["memory"].numpy(), content)
    assert inputs["memory_mask"].numpy().all()
    mask = memory.read(tf.constant([True, False]))["memory_mask"].numpy()  # the first row starts a stream
    np.testing.assert_array_equal(mask, [[False] * 4, [True] * 4])
    memory.reset()
    inputs = memory.read(continues)
    assert not inputs["memory_mask"].numpy().any() and not inputs["memory"].numpy().any()


def test_memory_within_a_document_reaches_back_to_its_start():
    memory, _ = filled(rows=4)
    offsets = tf.constant([0, 1, 3, 100])
    mask = memory.read(tf.zeros([4], tf.bool), offsets)["memory_mask"].numpy()
    expected = [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1]]
    np.testing.assert_array_equal(mask, np.array(expected, bool))


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_checkpoint_restores_every_bit(tmp_path, dtype):
    memory, content = filled(dtype=dtype)
    memory.write(tf.constant(content), tf.constant([[True, False, True, True], [False] * 4]))
    path = tf.train.Checkpoint(memory=memory).write(str(tmp_path / "checkpoint"))
    other = Memory(n_layer=1, rows=2, memory_len=4, d_model=3, dtype=dtype)
    tf.train.Checkpoint(memory=other).read(path).assert_consumed()
    inputs = other.read(tf.constant([False, False]))
    np.testing.assert_array_equal(tf.cast(inputs["memory"], tf.float32).numpy(), content)
    np.testing.assert_array_equal(inputs["memory_mask"].numpy(), [[True, False, True, True], [False] * 4])


def test_another_batch_size_is_refused(tmp_path):
    path = tf.train.Checkpoint(memory=filled(rows=2)[0]).write(str(tmp_path / "checkpoint"))
    other = Memory(n_layer=1, rows=3, memory_len=4, d_model=3)
    with pytest.raises(UserError, match=r"\[1, 2, 4, 3\].*\[1, 3, 4, 3\]"):
        tf.train.Checkpoint(memory=other).read(path)
