"""The run as a whole: counts, evaluations, the stop rule, progress, the end and its result."""
