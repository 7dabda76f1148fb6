"""Shows what a run has learned: plays, evaluates, plots, compares."""
