"""Everything that shows a run: one model, `run_view`, and its layouts."""
