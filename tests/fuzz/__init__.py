"""Random damage to files and settings: each is an error that says what is wrong, or changes nothing.

Begin with test_records.py.
"""
