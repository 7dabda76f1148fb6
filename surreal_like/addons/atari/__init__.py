"""Games of Atari with the usual preprocessing."""
