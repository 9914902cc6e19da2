"""Tests of the local server. Begin with test_server.py, which asks it as clients do."""
