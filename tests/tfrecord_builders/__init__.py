"""Tests of tfrecord_builders/. Begin with pretraining/test_build.py."""
