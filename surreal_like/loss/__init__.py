"""Losses and returns: pure functions of tensors; argument names carry the time step."""
