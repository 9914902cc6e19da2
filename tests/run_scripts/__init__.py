"""Tests of run_scripts/."""
