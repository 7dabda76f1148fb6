"""Publications of the learner: rising versions, repeated for late subscribers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.process.clock import Clock
from session.wire.schema import cut
from session.wire.sockets import PublisherSocket
from surreal_like.data.parameters import Manifest, Parameters, parameter_hash

_REPEAT_SECONDS = 1.0


Decision = Literal["publish", "postpone", "skip"]


class PublishRule:
    """Decides which updates are published.

    Args:
        settings: ``learner_config.parameter_publish``.
        now: present time of the clock [s]; the first update is published.
    """

    def __init__(self, settings: Config, now: float) -> None:
        self._every = max(1, int(settings.every))
        self._interval = float(settings.min_publish_interval)
        self._time, self._iteration = now - self._interval, -self._every

    def decide(self, now: float, iteration: int, last: bool | None) -> Decision:
        """Returns the decision about the newest update.

        Args:
            now: present time of the clock [s].
            iteration: number of updates.
            last: synchronous agents wait for one version per training iteration: True
                for its last batch, False for the others. None: there are no such iterations.
        """
        if last is not None:
            return "publish" if last else "skip"
        if iteration - self._iteration < self._every:
            return "skip"
        return "postpone" if now - self._time < self._interval else "publish"

    def on_publication(self, now: float, iteration: int) -> None:
        """Records a publication."""
        self._time, self._iteration = now, iteration


class Publisher:
    """Publishes parameters.

    Args:
        socket: publisher of ``learner.parameters``.
        clock: clock for timestamps and repetitions.
        incarnation: incarnation of the learner.
        version: the largest version published so far; the next one is larger by 1.

    Attributes:
        newest: the newest publication, None before the first.
        exploit: generation and settings of a trial that has taken over another one.
    """

    def __init__(
        self, socket: PublisherSocket, clock: Clock, *, incarnation: int, version: int
    ) -> None:
        self.version = version
        self.newest: Parameters | None = None
        self.exploit: Mapping[str, Any] = {}
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
            **self.exploit,
        }
        self.newest = Parameters(flat, manifest, self.version, self._incarnation, iteration, info)
        self._send()

    def tick(self) -> None:
        """Repeats the newest version for new subscribers, and after 1 s without publication."""
        quiet = self._clock.now() - self._sent_at >= _REPEAT_SECONDS
        if (self._socket.new_subscribers() or quiet) and self.newest is not None:
            self._send()

    def _send(self) -> None:
        if self.newest is not None:
            self._socket.publish(self.newest.to_message())
            self._sent_at = self._clock.now()
