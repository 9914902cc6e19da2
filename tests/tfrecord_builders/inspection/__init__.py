"""Tests of tfrecord_builders/inspection/. Begin with test_check.py: damage of any kind is found."""
