"""Tests of tfrecord_builders/automatic/. Begin with test_build.py."""
