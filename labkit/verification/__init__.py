"""HOST: `lab verify`: is the record of a collected run complete and untampered.

`verify.py` runs the checks in order; each other module is one check and says what it compares. Nothing here
changes a file of the run.
"""
