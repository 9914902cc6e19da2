"""Tests of xlnet_tf/checkpoints/. Begin with test_formats.py: weights from any format to any other."""
