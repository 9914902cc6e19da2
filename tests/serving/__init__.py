"""Tests of xlnet_tf/serving/. Begin with test_server_contract.py: what holds for each served model."""
