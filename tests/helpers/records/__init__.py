"""What tests of records share."""
