"""Logs of all components: one client per component, one server that writes the files."""
