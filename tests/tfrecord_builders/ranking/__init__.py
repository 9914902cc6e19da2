"""Tests of tfrecord_builders/ranking/."""
