"""Tests of tfrecord_builders/classification/."""
