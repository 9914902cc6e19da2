"""Tests of tfrecord_builders/squad/. Begin with test_build.py."""
