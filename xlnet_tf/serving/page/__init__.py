"""The page that explains XLNet: a file without outside resources, and the routes that serve it.

Begin with `routes.py`. `explainer.py` computes what the page shows of a language model; served models answer
the page over the server's REST interface.
"""
