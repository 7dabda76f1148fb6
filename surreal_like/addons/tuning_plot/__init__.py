"""Pictures of tunings."""
