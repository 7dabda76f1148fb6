"""The Ray launcher: a job for the core, an actor for each machine of agents."""
