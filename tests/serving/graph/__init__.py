"""Tests of xlnet_tf/serving/graph/. Begin with test_int8.py."""
