"""Shared by all commands: arguments, completion in shells, Ctrl-C. Begin with `command_line.py`."""
