"""A local server: TensorFlow Serving's REST and gRPC APIs over exports. Begin with `server.py`."""
