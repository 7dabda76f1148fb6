"""The command of a machine that joins."""
