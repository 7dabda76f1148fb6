"""Version of the distribution; defined only here, read by `setup.py` and at run time."""

VERSION = "0.2.0.dev0"
