"""The Slurm launcher: two jobs, one for the core and one for the agents."""
