"""Tests of xlnet_tf/tpu/. Begin with test_steps.py: what a lowered step consists of."""
