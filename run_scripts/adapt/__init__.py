"""The command `adapt`: continued pretraining on texts of a domain, measured. Begin with `adaptation.py`."""
