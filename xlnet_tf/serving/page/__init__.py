"""The page that explains XLNet: a file without outside resources, and the routes that answer it.

Begin with `routes.py`. `explainer.py` computes what the page shows of a language model; what served models
answer, the page asks the server's REST interface for.
"""
