"""The command of tunings, and their table."""
