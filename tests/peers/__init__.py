"""How today's other libraries read our files, and we theirs: `python -m tests.peers`, outside CI."""
