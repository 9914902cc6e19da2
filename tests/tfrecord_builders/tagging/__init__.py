"""Tests of tfrecord_builders/tagging/. Begin with test_build.py."""
