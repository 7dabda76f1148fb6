"""Decides which updates are published, and publishes parameters under growing versions."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.process.clock import Clock
from session.wire.one_way_sockets import PublisherSocket
from session.wire.schema import cut
from surreal_like.data.parameters import Manifest, Parameters, parameter_hash
from surreal_like.data.policy_names import DEFAULT_POLICY, PolicyId

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
        socket: publisher of the policy's parameters.
        clock: clock for timestamps and repetitions.
        incarnation: incarnation of the learner.
        version: the largest version published so far; the next one is larger by 1.
        policy: name of the policy.
        half: True sends weights in float32 as float16.

    Attributes:
        newest: the newest publication, None before the first.
        exploit: generation and settings of a trial that has taken over another one.
        task: number and settings of the run's newest task; empty without one.
        resumable: True if the run goes on later, so that machines that have joined wait.
        final_seconds: time that evaluators have to play the last version; 0: they do not.
        snapshots: iteration -> snapshot of the policy that lives.
    """

    def __init__(
        self,
        socket: PublisherSocket,
        clock: Clock,
        *,
        incarnation: int,
        version: int,
        policy: str = DEFAULT_POLICY,
        half: bool = False,
    ) -> None:
        self.version = version
        self._half = half
        self.newest: Parameters | None = None
        self.exploit: Mapping[str, Any] = {}
        self.task: Mapping[str, Any] = {}
        self.resumable = False
        self.final_seconds = 0.0
        self.snapshots: dict[int, Parameters] = {}
        # Snapshots that are sent one at a time: more than a few would not fit into a queue.
        self._waiting: deque[Parameters] = deque()
        self._socket = socket
        self._clock = clock
        self._incarnation, self._policy = incarnation, policy
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
        weights: Collection[str] = (),
    ) -> None:
        """Publishes a new version; ``flat`` must not change afterwards.

        Args:
            flat, manifest: parameters.
            iteration: number of updates that they have had.
            env_steps: environment steps of the run.
            message: text for agents.
            final: True for the last version of the run.
            weights: names of the tensors that may be rounded.
        """
        self.version += 1
        info = self._describe(flat, iteration, env_steps)
        info |= {"message": cut(message), "final": final, **self.exploit}
        if self.task:
            info["task"] = self.task
        if final and self.resumable:
            info["resumable"] = True
        if final and self.final_seconds:
            info["final_seconds"] = self.final_seconds
        if self.snapshots:
            info["snapshots"] = sorted(self.snapshots)
        about = self.version, self._incarnation, iteration, info, self._policy
        self.newest = self._encode(Parameters(flat, manifest, *about), weights)
        self._send()

    def _encode(self, parameters: Parameters, weights: Collection[str]) -> Parameters:
        return parameters.encode_half(weights) if self._half else parameters

    def _describe(
        self, flat: npt.NDArray[np.uint8], iteration: int, env_steps: int
    ) -> dict[str, Any]:
        return {
            "time": self._clock.time(),
            "iteration": iteration,
            "message": "",
            "hash": parameter_hash(flat),
            "env_steps": env_steps,
            "final": False,
        }

    def add_snapshot(
        self,
        flat: npt.NDArray[np.uint8],
        manifest: Manifest,
        *,
        iteration: int,
        env_steps: int,
        weights: Collection[str] = (),
    ) -> None:
        """Publishes a snapshot under a name of its own; arguments are those of `publish`."""
        info = self._describe(flat, iteration, env_steps)
        name = PolicyId(self._policy).snapshot(iteration)
        # Versions begin with 1.
        about = iteration + 1, self._incarnation, iteration, info, name
        snapshot = self._encode(Parameters(flat, manifest, *about), weights)
        self.snapshots[iteration] = snapshot
        self._waiting.append(snapshot)

    def tick(self) -> None:
        """Repeats the newest version for new subscribers, and after 1 s without publication."""
        came = self._socket.new_subscribers()
        if came:
            self._waiting = deque(self.snapshots.values())
        quiet = self._clock.now() - self._sent_at >= _REPEAT_SECONDS
        if (came or quiet) and self.newest is not None:
            self._send()
        if self._waiting:
            self._socket.publish(self._waiting.popleft().to_message())

    def _send(self) -> None:
        if self.newest is not None:
            self._socket.publish(self.newest.to_message())
            self._sent_at = self._clock.now()
