"""Several policies in one run: who plays which agent, and the processes that act for all."""
