"""Tests of tfrecord_builders/pretraining/. Begin with test_build.py."""
