"""A stand-in for Google Cloud: gcloud and kubectl that play a scenario on this machine.

Begin with `standin.py`; `bin` has the two programs, to be put first on PATH.
"""
