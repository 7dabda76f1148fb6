"""Commands of recordings."""
