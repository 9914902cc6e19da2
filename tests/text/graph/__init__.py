"""Tests of xlnet_tf/text/graph/. Begin with test_tokenizer.py: the graph gives what Python gives."""
