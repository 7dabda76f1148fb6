"""The wire: messages, endpoints and sockets for communication between processes of a run.

Names are loaded at their first use: messages need no ZeroMQ.
"""

from session.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
__all__ = __dir__()
