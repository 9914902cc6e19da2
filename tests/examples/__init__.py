"""Tests of examples/. Begin with test_demo.py."""
