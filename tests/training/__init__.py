"""Tests of xlnet_tf/training/. Begin with test_trainer.py, one step, and test_run.py, whole runs."""
