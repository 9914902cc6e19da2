"""Tests of xlnet_tf/tasks/ranking/. Begin with test_task.py."""
