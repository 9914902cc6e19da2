"""From text to token ids: cleaning, SentencePiece, packing, windows and character offsets.

Begin with `tokenizer.py`. `graph/` does the same as operations of TensorFlow.
"""
