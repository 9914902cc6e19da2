"""Tests of deploy/. Begin with test_deploy.py: jobs, manifests and scripts, as far as no cloud is needed."""
