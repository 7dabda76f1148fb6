"""Networks: the flat Module, torsos for any observation, recurrent cores, heads.

Names are loaded at their first use.
"""

from session.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
__all__ = __dir__()
