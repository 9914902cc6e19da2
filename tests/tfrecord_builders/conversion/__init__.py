"""Tests of tfrecord_builders/conversion/."""
