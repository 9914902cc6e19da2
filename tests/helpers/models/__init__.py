"""What tests of models share.

Begin with cases.py, models drawn at random; reference.py is the paper in numpy.
"""
