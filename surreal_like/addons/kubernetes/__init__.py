"""Experiments as objects of a Kubernetes cluster."""
