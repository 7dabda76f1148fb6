"""Environments: one (`Env`), N of them (`VectorEnv`), their wrappers, and their names in configs.

Names are loaded at their first use, so that a toy environment does not wait for gymnasium.
"""

from session.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
__all__ = __dir__()
