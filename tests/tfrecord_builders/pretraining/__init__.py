"""Tests of tfrecord_builders/pretraining/."""
