"""What tests share. Begin with models/cases.py, models drawn at random."""
