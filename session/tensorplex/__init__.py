"""Metrics of all components: one client per component, one server that writes event files."""
