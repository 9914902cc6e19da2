"""Tests of xlnet_tf/tasks/question_answering/. Begin with test_task.py."""
