"""Logs of all components: a client in each of them, one server that writes the files."""
