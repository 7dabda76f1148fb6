"""R2D2: recurrent Q-learning from stored sequences, with the replay that gives them."""
