"""Store of the newest parameters of each policy; never returns to older ones."""

from __future__ import annotations

from surreal_like.data.parameters import Parameters


class ParameterStore:
    """Keeps one publication per policy: the newest by ``(learner incarnation, version)``."""

    def __init__(self) -> None:
        self._newest: dict[str, Parameters] = {}

    def put(self, parameters: Parameters) -> bool:
        """Stores a publication; returns False if it is not newer than the stored one."""
        known = self._newest.get(parameters.policy)
        if known is not None and parameters.order <= known.order:
            return False
        self._newest[parameters.policy] = parameters
        return True

    def newest(self, policy: str = "default") -> Parameters | None:
        """Returns the newest publication of a policy, None before the first."""
        return self._newest.get(policy)

    def order(self, policy: str = "default") -> tuple[int, int]:
        """Returns ``(learner incarnation, version)`` of the newest, ``(0, 0)`` before the first."""
        known = self._newest.get(policy)
        return (0, 0) if known is None else known.order
