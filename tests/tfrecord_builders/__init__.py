"""Tests of tfrecord_builders/."""
