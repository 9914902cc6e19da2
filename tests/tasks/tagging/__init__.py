"""Tests of xlnet_tf/tasks/tagging/. Begin with test_task.py."""
