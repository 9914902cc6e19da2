"""What tests of training share. Begin with toy.py, a run that takes seconds."""
