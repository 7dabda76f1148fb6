"""Curriculum: a function of the user chooses the task of the episodes that begin."""
