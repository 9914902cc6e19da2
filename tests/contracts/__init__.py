"""Artefacts that earlier code wrote, to which today's code is held; begin with README.md."""
