"""The equations of the paper as Keras layers.

Begin with `attention.py`: the score of a pair, softmax, two streams. `block.py` adds the feed-forward
network, `masks.py` says who may see whom, `positions.py` encodes distances. What makes them fast is in
`kernels/`.
"""
