"""The body of XLNet and its heads.

Begin with `encoder.py`, the body. `head.py` is what all heads share; there is one file for each head, and
`loading.py` builds any of them from a checkpoint.
"""
