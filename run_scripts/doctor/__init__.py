"""The command doctor, which prints what `checks` finds on this machine. Begin with __main__.py."""
