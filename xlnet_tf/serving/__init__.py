"""SavedModels that take raw text, and clients of a server of them.

Begin with `export.py`. `module.py` is what all served models share; there is one file for each task.
`client.py` asks a running TensorFlow Serving.
"""
