"""Tests of xlnet_tf/tasks/losses/. Begin with test_labels.py."""
