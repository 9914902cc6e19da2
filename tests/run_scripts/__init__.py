"""Tests of run_scripts/. Begin with test_finetune.py."""
