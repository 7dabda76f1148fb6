"""Execution context of a component: config, sockets, log, metrics and clock."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import zmq

from session.config import Config
from session.errors import ConfigError
from session.folder import RunFolder
from session.loggerplex.log_client import Log, make_log
from session.process.clock import Clock, WallClock
from session.process.component import Component, Topology
from session.process.handshake import Accepted
from session.process.heartbeat import Beat, State, write_beat
from session.process.seeding import component_seed
from session.tensorplex.metrics_client import TensorplexClient
from session.wire import AddressBook, Identity, Wire
from session.wire.one_way_sockets import PushSocket, Socket
from session.wire.security import Security
from session.wire.socket_state import poll
from session.wire.telemetry_buffer import Channel

# Time that a save, or another long piece of work, may take before its component counts as silent.
BUSY_SECONDS = 60.0
_NAMES_KEPT = 4096
_RUN_LIMIT = 1 << 30

Pause = Callable[[Sequence[Socket], float], None]


def run_part(config: Config) -> int:
    """Number of the part of the run: 1, increased by 1 each time the run is resumed.

    It is 0 in a folder that waits for its first part.
    """
    return _run_number(config, "part", 1)


def run_generation(config: Config) -> int:
    """Number of times that the run, a trial of a tuning, has taken over another one."""
    return _run_number(config, "generation", 0)


def _run_number(config: Config, name: str, usual: int) -> int:
    """Reads a number that goes into messages.

    Raises:
        ConfigError: it is no number that a run of any length reaches.
    """
    value = (config.get("run") or {}).get(name, usual)
    if type(value) is not int or not 0 <= value <= _RUN_LIMIT:
        raise ConfigError(
            f"run.{name} of this run's config.yaml is {value!r}, expected a whole number from "
            f"0 to {_RUN_LIMIT}; the file was changed or damaged"
        )
    return value


def run_fingerprint(config: Config) -> str:
    """Returns the fingerprint of the experiment with which the run was launched.

    A trial that takes over the settings of another one keeps its own.
    """
    return str((config.get("run") or {}).get("launched_as") or config.fingerprint())


@dataclass(frozen=True, slots=True)
class Launch:
    """Start data of one process.

    Args:
        component: description of the process.
        config: ``algorithm``, ``learner_config``, ``env_config``, ``session_config``, resolved.
        topology: all components of the run.
        addresses: address of each endpoint.
        folder: the run folder, None if none is shared.
        keys: folder of the run's keys; None: ``keys/`` of the run folder, if it exists.
    """

    component: Component
    config: Config
    topology: Topology
    addresses: AddressBook
    folder: RunFolder | None
    keys: Path | None = None

    @property
    def security(self) -> Security:
        """Keys and connection limits of its sockets.

        Raises:
            ConfigError: a key is missing or invalid.
        """
        if self.keys is not None:
            return Security.load(self.keys, self.config)
        return Security.of_run(None if self.folder is None else self.folder.keys, self.config)


class Context:
    """Argument of ``build(context)``, which makes a Service; the service uses it until it closes.

    Args:
        launch: start data of the component.
        zmq_context: the one ZeroMQ context of this process.
        clock: source of time of the component.
        incarnation: wall clock at the start [ms]; in the serial launcher, a number of the start.
        pause: called while a request waits for its reply.

    Attributes:
        name, component, config, topology, folder: the same as in the Launch.
        clock: the only source of time; components never use ``time``.
        wire: makes sockets.
        log, tensorplex: this component's log and metrics.
        seed: derived from the experiment's seed, the name and the number of starts.
        welcome: answer of the parameter server: starts of this name, newest parameters.
        stopping: True once the component must end.
        ends_run: the end of this component is that of the run; else it is started again.
        orphaned: True once its launcher has died; the component must end fast.
        status: numbers reported in each heartbeat.
    """

    def __init__(
        self,
        launch: Launch,
        zmq_context: zmq.Context[zmq.Socket[bytes]],
        *,
        clock: Clock,
        incarnation: int,
        pause: Pause = poll,
    ) -> None:
        self.component = launch.component
        self.name = launch.component.name
        self.config = launch.config
        self.topology = launch.topology
        self.folder = launch.folder
        self.clock = clock
        self.stopping = False
        self.ends_run = False
        self.orphaned = False
        self.welcome = Accepted(incarnation=incarnation)
        session = launch.config.session_config
        self.fingerprint: str = run_fingerprint(launch.config)
        identity = Identity(self.name, incarnation, bytes.fromhex(self.fingerprint[:16]))
        self.wire = Wire(
            zmq_context,
            launch.addresses,
            identity,
            max_message_bytes=session.max_message_bytes,
            stopping=lambda: self.stopping,
            pause=pause,
            on_reject=self._reject,
            security=launch.security,
        )
        # Checked for each message; bounded, because the names come from the network.
        self.wire.knows = lru_cache(maxsize=_NAMES_KEPT)(launch.topology.knows)
        self.wire.run_over = lambda: self.run_over
        self._channels = {
            plex: Channel(self._telemetry(plex), plex) for plex in ("tensorplex", "loggerplex")
        }
        self.log: Log = make_log(
            self.name, self._channels["loggerplex"], level=session.loggerplex.level, clock=clock
        )
        self.tensorplex = self.metrics(self.component.metric_id)
        # Sends heartbeat and telemetry during a long step; set by the frame or by a script.
        self.pulse: Callable[[], object] = lambda: None
        # Also receives connection warnings, which must be visible without the log server.
        self.warn: Callable[[str], object] = lambda text: None
        self._state, self._doing = State.starting, ""
        self._began = WallClock().now()
        self.status: dict[str, float] = {}
        # False: the process stays alive although its work for the run is over.
        self.ready = True

    def metrics(self, client_id: str) -> TensorplexClient:
        """Makes a metrics client with another id than the component's, on the same socket."""
        return TensorplexClient(client_id, self._channels["tensorplex"], clock=self.clock)

    def channel(self, plex: str) -> Channel:
        """The send buffer of records for ``tensorplex`` or ``loggerplex``."""
        return self._channels[plex]

    @property
    def seed(self) -> int:
        """Random seed of this component for this start and this part of the run."""
        seed = int(self.config.session_config.seed)
        return component_seed(seed, self.name, self.welcome.starts, part=run_part(self.config))

    @property
    def spec_hash(self) -> str:
        """Hash of the observation and action specs in the config."""
        env = self.config.env_config
        text = json.dumps([env.obs_spec, env.action_spec], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def incarnation(self) -> int:
        """Wall clock at this start [ms]; in the serial launcher, a number of the start."""
        return self.wire.identity.incarnation

    @property
    def leaves(self) -> bool:
        """True once this process must end although the run goes on."""
        return self.stopping and not self.ends_run

    def on_signal(self, number: int) -> None:
        """Asks this process to end; SIGINT to the learner ends the run."""
        owns = self.component.kind == "learner" and not self.component.index
        self.ends_run |= number == signal.SIGINT and owns
        self.stopping = True

    @property
    def run_over(self) -> bool:
        """True once the result of the run is final; reads a file. False without a run folder."""
        return self.folder is not None and self.folder.over

    @property
    def may_exit(self) -> bool:
        """True if this process may end once its work is done: by ``at_end``, or as it was asked."""
        return self.stopping or self.config.session_config.at_end == "exit"

    def busy(self, seconds: float, doing: str) -> None:
        """Sends a heartbeat that allows the next one to be ``seconds`` later, with the reason.

        The next heartbeat ends this state. Work in many short parts calls ``pulse`` between them
        instead.
        """
        self.beat(self._state, doing, busy_seconds=seconds)

    def event(self, kind: str, detail: str = "", **fields: object) -> None:
        """Records an event of the run as a line of ``events.jsonl``."""
        self.log.event(kind, detail, **fields)

    def beat(self, state: State, doing: str = "", *, busy_seconds: float = 0.0) -> None:
        """Writes the heartbeat file."""
        self._state, self._doing = state, doing
        if self.folder is None:
            return
        beat = Beat(
            self.name,
            self.incarnation,
            state,
            # Real time in a serial run, too: other processes compare it with their clock.
            os.getpid(),
            WallClock().time(),
            busy_seconds,
            doing,
            self._dropped_records,
            self.ready and state == State.running,
            self.status,
            began=self._began,
        )
        write_beat(self.folder.alive, beat)

    @property
    def _dropped_records(self) -> int:
        return sum(channel.dropped for channel in self._channels.values())

    def accept(self, welcome: Accepted) -> None:
        """Stores the parameter server's answer and uses its incarnation."""
        self.welcome = welcome
        self.wire.identity = self.wire.identity._replace(incarnation=welcome.incarnation)

    def flush(self) -> None:
        """Sends collected telemetry without blocking, and reports connection problems.

        Raises:
            AdmissionError: another component refuses the connection.
        """
        # Here because this is called regularly, in long steps, too.
        for warning in self.wire.check():
            self.log.warning("%s", warning)
            self.warn(warning)
        for channel in self._channels.values():
            channel.flush()

    def close(self, linger_seconds: float = 1.0) -> None:
        """Flushes telemetry and closes every socket, with deadlines.

        Args:
            linger_seconds: maximum time in which libzmq sends queued messages afterwards.
        """
        reported = self._dropped_records
        for channel in self._channels.values():
            channel.close(0.5)
        if self._dropped_records > reported:
            # If the telemetry servers are dead, only the heartbeat file can report these drops.
            self.beat(self._state, self._doing)
        self.wire.close(linger_seconds)

    def _telemetry(self, plex: str) -> PushSocket | None:
        endpoint = f"{plex}.records"
        if endpoint not in self.wire.addresses:
            return None
        # Few: ZeroMQ cannot drop the oldest of its queue, the channel can.
        return self.wire.push(endpoint, high_water_mark=100)

    def _reject(self, endpoint: str, sender: str, reason: str) -> None:
        self.event("refused", f"{endpoint}: message of '{sender}' dropped: {reason}")
