"""Tests of benchmarks/. Begin with test_step.py."""
