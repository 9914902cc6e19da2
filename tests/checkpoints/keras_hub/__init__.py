"""Weights of KerasHub and its answers."""
