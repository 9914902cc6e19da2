"""SavedModels that take raw text, and clients of a server of them.

Begin with `export.py`. `graph/` is what all served models share; each task adds its own in `xlnet_tf/tasks/`.
`client.py` asks a running TensorFlow Serving.
"""
