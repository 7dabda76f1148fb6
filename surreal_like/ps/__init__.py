"""Parameter server: newest parameters, and the membership of all components of a run."""
