"""The learner's publications: versions that only rise, repeated for whoever comes late."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from session.clock import Clock
from session.wire.schema import cut
from session.wire.sockets import PublisherSocket
from surreal_like.data.parameters import Manifest, Parameters, parameter_hash

_REPEAT_SECONDS = 1.0


class Publisher:
    """Publishes parameters.

    Args:
        socket: publisher of ``learner.parameters``.
        clock: for stamps and repeats.
        incarnation: the learner's.
        version: the largest ever published; the next is one more.
    """

    def __init__(
        self, socket: PublisherSocket, clock: Clock, *, incarnation: int, version: int
    ) -> None:
        self.version = version
        self.newest: Parameters | None = None
        self._socket = socket
        self._clock = clock
        self._incarnation = incarnation
        self._sent_at = clock.now()

    def publish(
        self,
        flat: npt.NDArray[np.uint8],
        manifest: Manifest,
        *,
        iteration: int,
        env_steps: int,
        message: str = "",
        final: bool = False,
    ) -> None:
        """Publishes a new version; ``flat`` must not change afterwards."""
        self.version += 1
        info: dict[str, Any] = {
            "time": self._clock.time(),
            "iteration": iteration,
            "message": cut(message),
            "hash": parameter_hash(flat),
            "env_steps": env_steps,
            "final": final,
        }
        self.newest = Parameters(flat, manifest, self.version, self._incarnation, iteration, info)
        self._send()

    def tick(self) -> None:
        """Sends the newest version again to a new subscriber, and when it has been quiet."""
        quiet = self._clock.now() - self._sent_at >= _REPEAT_SECONDS
        if (self._socket.new_subscribers() or quiet) and self.newest is not None:
            self._send()

    def _send(self) -> None:
        if self.newest is not None:
            self._socket.publish(self.newest.to_message())
            self._sent_at = self._clock.now()
