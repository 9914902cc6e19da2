"""Tests of xlnet_tf/text/."""
