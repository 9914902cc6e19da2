"""Tests of xlnet_tf/fuzz/."""
