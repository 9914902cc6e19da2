"""What tests of training share."""
