"""Tests of tfrecord_builders/corpus/."""
