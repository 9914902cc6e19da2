"""Tests of xlnet_tf/tasks/pretraining/. Begin with test_task.py."""
