"""Tests of xlnet_tf/tpu/."""
