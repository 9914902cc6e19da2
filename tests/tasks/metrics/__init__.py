"""Tests of xlnet_tf/tasks/metrics/. Begin with test_calibration.py."""
