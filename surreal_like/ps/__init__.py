"""The parameter server: newest parameters, and the roll of all components of a run."""
