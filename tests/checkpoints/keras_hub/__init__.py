"""A backbone of KerasHub and its answers. Begin with `make.py`, which made them."""
