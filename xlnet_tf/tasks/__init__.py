"""One task each: what a model is trained for."""
