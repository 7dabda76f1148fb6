"""Video: pictures of what policies do, in files, and films of evaluations."""
