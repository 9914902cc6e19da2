"""Tests of xlnet_tf/layers/kernels/. Begin with test_conformance.py: each kernel against the reference."""
