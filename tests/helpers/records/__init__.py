"""What tests of records share. Begin with synthetic.py, sets of records without a corpus."""
