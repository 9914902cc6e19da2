"""Tests of tfrecord_builders/inspection/."""
