"""Tests of xlnet_tf/serving/."""
