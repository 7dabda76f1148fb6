"""Exploration: schedules over a run, and a different degree of exploration for each agent."""
