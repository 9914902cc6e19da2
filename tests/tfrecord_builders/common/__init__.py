"""Tests of tfrecord_builders/common/."""
