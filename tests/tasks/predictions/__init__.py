"""Tests of xlnet_tf/tasks/predictions/. Begin with test_question_answering.py."""
