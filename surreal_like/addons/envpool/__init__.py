"""Environments of EnvPool, which step their copies in threads."""
