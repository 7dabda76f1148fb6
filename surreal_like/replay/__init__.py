"""Replay: rows of experience in columns, chosen by selectors, seen through views."""
