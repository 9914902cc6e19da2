"""Tests of xlnet_tf/models/."""
