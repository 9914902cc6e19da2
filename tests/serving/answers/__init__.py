"""Tests of xlnet_tf/serving/answers/. Begin with test_text_answers.py."""
