"""Tests of tfrecord_builders/conversion/. Begin with test_convert.py."""
