"""Tests of xlnet_tf/hub/. Begin with test_locate.py: what a name becomes."""
