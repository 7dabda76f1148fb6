"""Serves scripts that no launcher started."""
