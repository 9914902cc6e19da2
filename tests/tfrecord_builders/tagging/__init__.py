"""Tests of tfrecord_builders/tagging/."""
