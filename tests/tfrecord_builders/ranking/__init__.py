"""Tests of tfrecord_builders/ranking/. Begin with test_build.py."""
