"""The command doctor, which prints what `checks` finds out about this machine. Begin with __main__.py."""
