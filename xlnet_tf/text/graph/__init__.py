"""Text processing as TensorFlow operations, for exported models.

Begin with `tokenizer.py`. A file does the same as the one of that name in the folder above, if there is one;
tests compare both.
"""
