"""Tests of xlnet_tf/verification/. Begin with test_spoilt.py: whole weights pass, spoilt ones fail."""
