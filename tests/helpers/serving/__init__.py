"""What tests of serving share."""
