"""Tests of xlnet_tf/layers/."""
