"""Tests of xlnet_tf/generation/. Begin with test_decoder.py: caching changes no number."""
