"""Tests of xlnet_tf/records/. Begin with test_segments.py and test_reader.py."""
