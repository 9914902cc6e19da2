"""What runs in environments of other libraries: each file imports one library; ours*.py this project.

Begin with `ours.py`.
"""
