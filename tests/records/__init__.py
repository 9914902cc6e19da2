"""Tests of xlnet_tf/records/."""
