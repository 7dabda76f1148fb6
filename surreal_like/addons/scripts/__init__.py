"""Scripts: policies as objects, workers that collect experience for them, metrics and logs."""
