"""What a component gets to work with: its config, its sockets, its log, its clock."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import zmq

from session.clock import Clock, WallClock
from session.component import Component, Topology
from session.config import Config
from session.folder import RunFolder
from session.handshake import Accepted
from session.heartbeat import Beat, write_beat
from session.loggerplex.client import Log, make_log
from session.seeding import component_seed
from session.tensorplex.client import TensorplexClient
from session.wire import AddressBook, Identity, Wire
from session.wire.security import Security
from session.wire.sockets import PushSocket, Socket
from session.wire.telemetry_buffer import Channel

_NAMES_KEPT = 4096

Pause = Callable[[Sequence[Socket], float], None]


def run_part(config: Config) -> int:
    """Which part of its run a config is for: 1, and one more each time the run is resumed."""
    return int((config.get("run") or {}).get("part", 1))


@dataclass(frozen=True, slots=True)
class Launch:
    """What one process is started with.

    Args:
        component: what it is.
        config: ``algorithm``, ``learner_config``, ``env_config``, ``session_config``, resolved.
        topology: all components of the run.
        addresses: where each endpoint is.
        folder: the run folder, None where none is shared.
        keys: folder of the run's keys; None: that of the run folder, if it is there.
    """

    component: Component
    config: Config
    topology: Topology
    addresses: AddressBook
    folder: RunFolder | None
    keys: Path | None = None

    @property
    def security(self) -> Security:
        """What protects its sockets.

        Raises:
            ConfigError: a key is missing or is none.
        """
        if self.keys is not None:
            return Security.load(self.keys, self.config)
        return Security.of_run(None if self.folder is None else self.folder.keys, self.config)


class Context:
    """What ``build(context)`` makes a Service from, and what the service may use while it lives.

    Attributes:
        name, component, config, topology, folder: as launched.
        clock: take the time from here, never from ``time``.
        wire: makes sockets.
        log, tensorplex: this component's log and metrics.
        seed: derived from the experiment's seed, the name and the number of starts.
        welcome: what the parameter server knew of this name and of the newest parameters.
        stopping: True once the component has been asked to end.
        orphaned: True once its launcher has died: end fast.
        status: the numbers that each heartbeat tells.
    """

    def __init__(
        self,
        launch: Launch,
        zmq_context: zmq.Context[zmq.Socket[bytes]],
        *,
        clock: Clock,
        incarnation: int,
        pause: Pause,
    ) -> None:
        self.component = launch.component
        self.name = launch.component.name
        self.config = launch.config
        self.topology = launch.topology
        self.folder = launch.folder
        self.clock = clock
        self.stopping = False
        self.orphaned = False
        self.welcome = Accepted(incarnation=incarnation)
        session = launch.config.session_config
        self.fingerprint: str = launch.config.fingerprint()
        identity = Identity(self.name, incarnation, bytes.fromhex(self.fingerprint[:16]))
        self.wire = Wire(
            zmq_context,
            launch.addresses,
            identity,
            max_message_bytes=session.max_message_bytes,
            stopping=lambda: self.stopping,
            pause=pause,
            on_reject=self._rejected,
            security=launch.security,
        )
        self.wire.knows = lru_cache(maxsize=_NAMES_KEPT)(launch.topology.knows)
        self._channels = {
            plex: Channel(self._telemetry(plex), plex, buffer=session.tensorplex.buffer)
            for plex in ("tensorplex", "loggerplex")
        }
        self.log: Log = make_log(
            self.name, self._channels["loggerplex"], level=session.loggerplex.level, clock=clock
        )
        self.tensorplex = self.metrics(self.component.metric_id)
        # Heartbeat and telemetry from inside a long step: of a component's frame, or of a script.
        self.pulse: Callable[[], object] = lambda: None
        # What connections suffer is told here too: where no log can be reached it must be seen.
        self.warn: Callable[[str], object] = lambda text: None
        self._state, self._doing = "starting", ""
        self.status: dict[str, float] = {}
        # False: it stays although its part in the run is over.
        self.ready = True

    def metrics(self, client_id: str) -> TensorplexClient:
        """A metrics client with another id than the component's, on the same socket."""
        return TensorplexClient(client_id, self._channels["tensorplex"], clock=self.clock)

    def channel(self, plex: str) -> Channel:
        """Where records for ``tensorplex`` or ``loggerplex`` wait until they leave."""
        return self._channels[plex]

    @property
    def seed(self) -> int:
        """Seed of this start of this component, in this part of the run."""
        seed = int(self.config.session_config.seed)
        return component_seed(seed, self.name, self.welcome.starts, part=run_part(self.config))

    @property
    def spec_hash(self) -> str:
        """Hash of the observation and action specs that stand in the config."""
        env = self.config.env_config
        text = json.dumps([env.obs_spec, env.action_spec], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def incarnation(self) -> int:
        """Milliseconds of the wall clock at this start; serially, the part of the run."""
        return self.wire.identity.incarnation

    def busy(self, seconds: float, doing: str) -> None:
        """Says that the next beat may come ``seconds`` later than usual, and why.

        The next beat says that it is over. Work in many short parts calls ``pulse`` between them
        instead.
        """
        self.beat(self._state, doing, busy_seconds=seconds)

    def event(self, kind: str, detail: str = "", **fields: object) -> None:
        """Notes something that happened to the run: a line of ``events.jsonl``."""
        self.log.event(kind, detail, **fields)

    def beat(self, state: str, doing: str = "", *, busy_seconds: float = 0.0) -> None:
        """Writes the heartbeat file."""
        self._state, self._doing = state, doing
        if self.folder is None:
            return
        beat = Beat(
            self.name,
            self.incarnation,
            state,
            os.getpid(),
            WallClock().time(),
            busy_seconds,
            doing,
            self._dropped_records,
            self.ready and state == "running",
            self.status,
        )
        write_beat(self.folder.alive, beat)

    @property
    def _dropped_records(self) -> int:
        return sum(channel.dropped for channel in self._channels.values())

    def accept(self, welcome: Accepted) -> None:
        """Takes over what the parameter server answered."""
        self.welcome = welcome
        self.wire.identity = self.wire.identity._replace(incarnation=welcome.incarnation)

    def flush(self) -> None:
        """Sends collected telemetry, as far as it can leave now, and looks after connections.

        Raises:
            AdmissionError: another component does not let this one in.
        """
        for warning in self.wire.check():
            self.log.warning("%s", warning)
            self.warn(warning)
        for channel in self._channels.values():
            channel.flush()

    def close(self) -> None:
        """Flushes telemetry and closes every socket, with deadlines."""
        told = self._dropped_records
        for channel in self._channels.values():
            channel.close(0.5)
        if self._dropped_records > told:
            # Where the servers of telemetry are dead nothing else is left to say so.
            self.beat(self._state, self._doing)
        self.wire.close(1.0)

    def _telemetry(self, plex: str) -> PushSocket | None:
        endpoint = f"{plex}.records"
        if endpoint not in self.wire.addresses:
            return None
        return self.wire.push(endpoint, high_water_mark=100)

    def _rejected(self, endpoint: str, sender: str, reason: str) -> None:
        self.event("refused", f"{endpoint}: message of '{sender}' dropped: {reason}")
