"""Text processing as TensorFlow operations, for exported models.

Begin with `tokenizer.py`. A file equals the one of the same name in the folder above, where there is one;
the tests hold them to each other.
"""
