"""Tests of xlnet_tf/verification/: whole weights pass, damaged ones fail."""
