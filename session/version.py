"""The version of the distribution: written here only, read by `setup.py` and by running code."""

VERSION = "0.1.0"
