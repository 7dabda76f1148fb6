"""Runs on Kubernetes: objects from a topology, and commands through kubectl."""
