"""Tests of xlnet_tf/verification/. Begin with test_verify.py: whole weights pass, damaged ones fail."""
