"""Starts, resumes and describes runs."""
