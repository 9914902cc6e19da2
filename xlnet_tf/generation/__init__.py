"""A pretrained model at work: continuing texts, filling gaps, scoring and embedding.

Begin with `language_model.py`, the class for users. `decoder.py` decodes one token at a time with cached
keys and values; `decoding_loop.py` continues texts and `infilling.py` fills gaps with it.
"""
