"""Tests of xlnet_tf/tasks/. Begin with test_finetuning.py."""
