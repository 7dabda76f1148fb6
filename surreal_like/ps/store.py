"""The newest parameters of each policy; never a step back."""

from __future__ import annotations

from surreal_like.data.parameters import Parameters


class ParameterStore:
    """Keeps one publication per policy: the newest by ``(learner incarnation, version)``."""

    def __init__(self) -> None:
        self._newest: dict[str, Parameters] = {}

    def put(self, parameters: Parameters) -> bool:
        """Takes a publication; False if it is not newer than what is here."""
        known = self._newest.get(parameters.policy)
        if known is not None and parameters.order <= known.order:
            return False
        self._newest[parameters.policy] = parameters
        return True

    def newest(self, policy: str = "default") -> Parameters | None:
        """The newest publication of a policy, None before the first."""
        return self._newest.get(policy)

    def order(self, policy: str = "default") -> tuple[int, int]:
        """``(learner incarnation, version)`` of the newest, ``(0, 0)`` before the first."""
        known = self._newest.get(policy)
        return (0, 0) if known is None else known.order
