"""Tests of xlnet_tf/tasks/multiple_choice/. Begin with test_task.py."""
