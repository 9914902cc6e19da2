"""What is written from code, the reference pages and the notebooks; begin with reference.py."""
