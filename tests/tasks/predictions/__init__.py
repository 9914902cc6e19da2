"""Tests of xlnet_tf/tasks/predictions/."""
