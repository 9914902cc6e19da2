"""Tests of xlnet_tf/serving/graph/. Begin with test_text_answers.py."""
