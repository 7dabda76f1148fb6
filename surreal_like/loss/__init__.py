"""Losses and returns: pure functions of tensors, named after the time their arguments belong to."""
