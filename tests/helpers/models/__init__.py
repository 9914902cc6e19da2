"""What tests of models share."""
