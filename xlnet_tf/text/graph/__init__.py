"""Text processing as TensorFlow operations, for exported models.

Begin with `tokenizer.py`. A file does what its namesake in the folder above does, if there is one; tests
compare both.
"""
