"""Tests of tfrecord_builders/race/."""
