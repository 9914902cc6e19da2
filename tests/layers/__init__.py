"""Tests of xlnet_tf/layers/. Begin with test_units.py: layers against numbers of the original."""
