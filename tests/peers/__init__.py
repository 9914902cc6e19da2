"""How today's other libraries read our files, and we theirs, outside CI: `python -m tests.peers`.

Begin with `tokens.py`.
"""
