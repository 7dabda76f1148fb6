"""Learning from recorded rows: behaviour cloning, and implicit Q-learning."""
