"""The dataflow of training as a value: flows, operators, sources.

Names are loaded at their first use.
"""

from session.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
__all__ = __dir__()
