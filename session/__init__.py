"""Processes, sockets, files and configuration; independent of learning algorithms."""

from session.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
__all__ = __dir__()
