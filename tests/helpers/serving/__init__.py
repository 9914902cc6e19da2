"""What tests of serving share. Begin with exports.py, a small exported model of each task."""
