"""Pretraining records of the original and of Model Garden, converted to this project's format and back.

Begin with `convert.py`. `original_format.py` and `model_garden_format.py` know the formats, `readers.py` and
`rows.py` turn their rows into streams, `direction_check.py` compares directions with the text.
"""
