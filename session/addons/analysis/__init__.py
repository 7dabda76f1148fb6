"""Charts of runs, and the dashboard of notebooks."""
