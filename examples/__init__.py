"""Programs to read and run: `make demo`, and a task in plain Keras. Begin with demo/__main__.py."""
