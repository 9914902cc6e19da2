"""Tests of xlnet_tf/tasks/classification/. Begin with test_task.py."""
