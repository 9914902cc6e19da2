"""What all commands share: arguments, completion in shells, Ctrl-C. Begin with `command_line.py`."""
