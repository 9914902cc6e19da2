"""Tests of run_scripts/common/. Begin with test_dry_run.py."""
