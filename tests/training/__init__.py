"""Tests of xlnet_tf/training/."""
