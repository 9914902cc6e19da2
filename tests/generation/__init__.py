"""Tests of xlnet_tf/generation/."""
