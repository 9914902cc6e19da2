"""Tests of tfrecord_builders/race/. Begin with test_build.py."""
