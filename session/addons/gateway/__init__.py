"""Connections from outside: one TCP port for binary frames, WebSocket and HTTP, with TLS."""
