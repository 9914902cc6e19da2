"""Tests of tfrecord_builders/squad/."""
