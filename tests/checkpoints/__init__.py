"""Tests of xlnet_tf/checkpoints/."""
