"""Tests of tfrecord_builders/common/. Begin with test_tables.py."""
