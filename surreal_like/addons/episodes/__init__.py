"""Episodes: finds rows of a replay by their places in episodes."""
