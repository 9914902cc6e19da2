"""Tests of tfrecord_builders/classification/. Begin with test_build.py."""
