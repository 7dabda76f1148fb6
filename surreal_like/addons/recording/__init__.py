"""Recordings: the chunks that replay shards have accepted, kept in files."""
