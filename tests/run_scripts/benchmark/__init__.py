"""Tests of run_scripts/benchmark/ and benchmark_*/. Begin with test_step.py."""
