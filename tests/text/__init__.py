"""Tests of xlnet_tf/text/. Begin with test_tokenizer.py."""
