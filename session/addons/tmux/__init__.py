"""tmux as a launcher: a window for each component."""
