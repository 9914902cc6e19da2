"""Tests of run_scripts/benchmark/."""
