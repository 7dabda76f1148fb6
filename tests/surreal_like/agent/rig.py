"""Components over real ipc sockets, and peers that a test plays by hand."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zmq

import main.ps
from session.config import Config
from session.config.defaults import (
    BASE_ENV_CONFIG,
    BASE_LEARNER_CONFIG,
    BASE_SESSION_CONFIG,
)
from session.folder import RunFolder
from session.process.component import Component
from session.process.context import Context, Launch
from session.process.service import Build, Frame
from session.wire import AddressBook, Identity, Message, Wire
from session.wire.one_way_sockets import Socket
from surreal_like.agent.acting import Acting, ActingPolicy
from surreal_like.agent.agent import Agent
from surreal_like.agent.player import Player
from surreal_like.data.parameters import Parameters, parameter_hash
from surreal_like.env.environment import Env, Step
from surreal_like.experience.chunk import Chunk
from surreal_like.experiment.topology import make_topology
from surreal_like.network.flat import manifest_of, named_tensors, read_flat
from surreal_like.network.module import Module
from surreal_like.policies.evaluator_builder import make_player
from tests.clock import HandClock
from tests.polling import until

LEARNER_INCARNATION = 9


class Count(Env):
    """Counts its steps: observation ``[episode, step]``, reward the step; ends as it is told.

    ends: how the episodes end, in turn: T a termination, U a truncation, B both.
    length: steps of each episode.
    """

    obs_spec = {"type": "float32", "dim": [2]}  # noqa: RUF012
    action_spec = {"type": "discrete", "dim": [3]}  # noqa: RUF012

    def __init__(self, length: int = 3, ends: str = "TU") -> None:
        self.length, self.ends = length, ends
        self.episode, self.step_number = -1, 0
        self.seeds: list[int] = []

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def reset(self) -> tuple[Any, dict[str, Any]]:
        self.episode, self.step_number = self.episode + 1, 0
        return self._observe(), {"clock": 0.5}

    def step(self, action: int) -> Step:
        self.step_number += 1
        end = self.ends[self.episode % len(self.ends)] if self.step_number == self.length else ""
        info = {"clock": 1.5, "metrics": {"my/action": action}}
        terminated, truncated = end in ("T", "B"), end in ("U", "B")
        return self._observe(), float(self.step_number), terminated, truncated, info

    def _observe(self) -> Any:
        return np.array([self.episode, self.step_number], np.float32)


class Failing(Count):
    """Raises an error at its step number ``at``, once; 0: never."""

    at = 0

    def __init__(self) -> None:
        super().__init__(length=20)
        self.steps = 0

    def step(self, action: int) -> Step:
        self.steps += 1
        if self.steps == self.at:
            raise RuntimeError("the simulator is gone")
        return super().step(action)


def play_alone(acting: Acting, config: Config, **given: Any) -> Player:
    """Makes what lets one policy play evaluations."""
    return make_player([ActingPolicy("default", acting)], config, **given)


class Line(Module):
    """One linear layer, with a buffer that travels too."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.line = torch.nn.Linear(2, width)
        self.scale: torch.Tensor
        self.register_buffer("scale", torch.ones(1))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.line(obs)
        return values


class LineAgent(Agent):
    """Takes the action of the largest value, and sends the values along while it trains."""

    width = 3

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.network = Line(self.width)
        self.seen_first: list[list[bool]] = []

    def act(self, obs: Any) -> Any:
        values = self.network(obs)
        self.seen_first.append(self.first.tolist())
        actions = values.argmax(1)
        return (actions, {"values": values}) if self.agent_mode == "training" else actions

    def module_dict(self) -> Mapping[str, torch.nn.Module]:
        return {"network": self.network}


def make_config(env: Mapping[str, Any] | None = None, **session: Any) -> Config:
    """A resolved experiment: Count, one agent; ``env`` and ``session`` are what differs."""
    config = Config(
        {
            "algorithm": "tests",
            "learner_config": {},
            "env_config": {
                "env_name": "tests.surreal_like.agent.rig:Count",
                "num_envs": 2,
                "obs_spec": dict(Count.obs_spec),
                "action_spec": dict(Count.action_spec),
                **(env or {}),
            },
            "session_config": {
                "agent": {"num": 1, "fetch_interval_seconds": 0.0},
                "sender": {"flush_iteration": 4},
                "stop": {"eval_episodes": 6},
            },
        }
    )
    for section, values in session.items():
        if isinstance(values, dict):
            config.session_config.setdefault(section, {}).update(values)
        else:
            config.session_config[section] = values
    bases = (BASE_LEARNER_CONFIG, BASE_ENV_CONFIG, BASE_SESSION_CONFIG)
    for section, base in zip(
        ("learner_config", "env_config", "session_config"), bases, strict=True
    ):
        config[section].extend(base)
    return config


class Rig:
    """The address book, one clock, and whoever is stepped by it.

    Args:
        config: resolved.
        folder: a short path for the sockets.
        run: the run folder, None where none is shared.
    """

    def __init__(self, config: Config, folder: Path, run: RunFolder | None = None) -> None:
        self.config = config
        self.run = run
        self.topology = make_topology(config)
        self.book = AddressBook.ipc(self.topology.endpoints, folder)
        self.clock = HandClock()
        self.zmq: zmq.Context[Any] = zmq.Context()
        self.frames: dict[str, Frame] = {}
        # Frames whose name a later incarnation has.
        self._replaced: list[Frame] = []
        self.wires: list[Wire] = []
        self.stepping: list[Callable[[], object]] = []
        self.records: list[dict[str, Any]] = []
        # Marks of records that are on their way.
        self._marks: set[int] = set()
        self._last_mark = 0
        self._polling = False
        sink = self.wire("sink")
        self._sinks = [
            sink.pull(f"{plex}.records", high_water_mark=1000)
            for plex in ("tensorplex", "loggerplex")
        ]

    def start(self, name: str, build: Build, *, incarnation: int = 5) -> Frame:
        """Starts a component that is stepped from now on."""
        frame = Frame(self._open(name, incarnation), build)
        if name in self.frames:
            self._replaced.append(self.frames[name])
        self.frames[name] = frame
        return frame

    def launch(self, component: Component) -> Launch:
        """What a component of this run is started with."""
        return Launch(component, self.config, self.topology, self.book, self.run)

    def _open(self, name: str, incarnation: int) -> Context:
        launch, clock = self.launch(self.topology.component(name)), self.clock
        return Context(launch, self.zmq, clock=clock, incarnation=incarnation, pause=self._pause)

    def context(self, name: str, *, incarnation: int = 5) -> Context:
        """A component without a frame."""
        context = self._open(name, incarnation)
        self.wires.append(context.wire)
        return context

    def wire(self, name: str, incarnation: int = 5, **changes: Any) -> Wire:
        """Sockets of a peer that the test plays."""
        values: dict[str, Any] = {
            "fingerprint": bytes.fromhex(self.config.fingerprint()[:16]),
            **changes,
        }
        identity = Identity(name, incarnation, values["fingerprint"])
        wire = Wire(self.zmq, self.book, identity, pause=self._pause)
        self.wires.append(wire)
        return wire

    def step(self, seconds: float = 0.001) -> None:
        """One round of everybody; a little real time passes too, for the sockets."""
        self.clock.seconds += seconds
        for frame in list(self.frames.values()):
            if not frame.finished:
                frame.step()
        for each in self.stepping:
            each()
        self._collect()

    def _collect(self) -> None:
        for sink in self._sinks:
            while (message := sink.receive()) is not None:
                for record in message.fields["records"]:
                    if "mark" in record:
                        self._marks.discard(record["mark"])
                    else:
                        self.records.append(record)
        time.sleep(0.0002)

    def settle(self) -> None:
        """Waits until all records of the frames so far are here; no time of the clock passes.

        A mark goes behind them on each way.
        """
        asked = [frame.context for frame in self.frames.values() if not frame.finished]
        for context in asked:
            for plex in ("tensorplex", "loggerplex"):
                self._last_mark += 1
                self._marks.add(self._last_mark)
                context.channel(plex).put({"mark": self._last_mark})

        def collect() -> None:
            for context in asked:
                context.flush()
            self._collect()

        until(lambda: not self._marks, step=collect)

    def until(self, condition: Callable[[], object], *, seconds: float = 10.0) -> None:
        """Steps until something is so.

        Raises:
            AssertionError: it was not so in time.
        """
        self._polling = True
        try:
            until(condition, seconds=seconds, step=self.step)
        finally:
            self._polling = False

    def pass_time(self, seconds: float) -> None:
        """Lets the clock's time pass, in a hundred rounds; then all records are here."""
        for _ in range(100):
            self.step(seconds / 100)
        self.settle()

    def events(self, kind: str) -> list[str]:
        """Details of the events of one kind that have been noted."""
        if not self._polling:
            self.settle()
        return [record["detail"] for record in self.records if record.get("event") == kind]

    def scalars(self, client_id: str) -> dict[str, float]:
        """The newest value of every metric that one client has reported."""
        if not self._polling:
            self.settle()
        values: dict[str, float] = {}
        for record in self.records:
            if record.get("id") == client_id:
                values |= record.get("values", {})
        return values

    def _pause(self, sockets: Sequence[Socket], seconds: float) -> None:
        self.step()

    def close(self) -> None:
        """Ends everybody."""
        for frame in (*self._replaced, *self.frames.values()):
            if not frame.finished:
                # Without the waits of an orderly end.
                if frame._service is not None:
                    frame._service.close()
                frame.context.wire.close(0)
        for wire in reversed(self.wires):
            wire.close(0)
        self.zmq.destroy(0)


@contextmanager
def make_rig(
    *, run: RunFolder | None = None, env: Mapping[str, Any] | None = None, **session: Any
) -> Iterator[Rig]:
    """A rig in a folder of its own, ended and removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="r"))
    rig = Rig(make_config(env, **session), folder, run)
    try:
        yield rig
    finally:
        rig.close()
        shutil.rmtree(folder)


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A rig with a parameter server."""
    with make_rig() as made:
        made.start("ps", main.ps.build)
        yield made


class ReplayPeer:
    """The replay that a test plays: takes chunks in order, ignores what it has, tells what it did.

    Attributes:
        chunks: those that were new, in order.
        ignored: numbers that had been handled.
        missing: numbers that came too early.
        goodbyes: fields of the goodbyes.
        open: False while it reads nothing.
        refusing: True while what comes is dropped.
        acking: False while it publishes no acks.
    """

    def __init__(self, rig: Rig, incarnation: int = 7, *, book: AddressBook | None = None) -> None:
        self._rig = rig
        self.wire = rig.wire("replay-0", incarnation)
        if book is not None:
            self.wire.addresses = book
        self._experience = self.wire.pull("replay-0.experience")
        self._acks = self.wire.publisher("replay-0.acks")
        self._acked_at = -1.0
        self.chunks: list[Chunk] = []
        self.goodbyes: list[dict[str, Any]] = []
        self.ignored: list[int] = []
        self.missing: list[int] = []
        self.open = self.acking = True
        self.refusing = False
        self.handled = self.inserted = 0
        self.sender, self.incarnation = "", 0
        rig.stepping.append(self.tick)

    def tick(self) -> None:
        """Takes what has come, and publishes acks every tenth of a second."""
        while self.open and (message := self._experience.receive()) is not None:
            self._take(message)
        now = self._rig.clock.now()
        if self.acking and now - self._acked_at >= 0.1:
            self._acked_at = now
            entry = [self.incarnation, self.handled, self.inserted, 0]
            senders = {self.sender: entry} if self.sender else {}
            self._acks.publish(Message("acks", {"senders": senders}))

    def _take(self, message: Message) -> None:
        self.sender, self.incarnation = message.sender.name, message.sender.incarnation
        sequence: int = message.fields["seq"]
        self.handled = max(self.handled, message.fields["acked"])
        if sequence <= self.handled:
            self.ignored.append(sequence)
            return
        if sequence > self.handled + 1:
            self.missing.append(sequence)
            return
        self.handled = sequence
        if message.kind == "goodbye":
            self.goodbyes.append(message.fields)
            return
        chunk = Chunk.from_message(message)
        self.chunks.append(chunk)
        self.inserted += 0 if self.refusing else chunk.size

    def die(self) -> None:
        """Goes away with everything that lies in its sockets."""
        self._rig.stepping.remove(self.tick)
        self.wire.close(0)

    def rows(self) -> int:
        """Rows that were taken."""
        return sum(chunk.size for chunk in self.chunks)

    def column(self, name: str) -> Any:
        """One column of all chunks, ``[T, N, ...]``."""
        return np.concatenate([chunk.columns[name] for chunk in self.chunks])


class LearnerPeer:
    """The learner that a test plays: publishes parameters of Line."""

    def __init__(self, rig: Rig, *, incarnation: int = LEARNER_INCARNATION) -> None:
        self.network = Line()
        self.version = 0
        self.incarnation = incarnation
        self._socket = rig.wire("learner", incarnation).publisher("learner.parameters")
        self._newest: dict[str, Parameters] = {}
        rig.stepping.append(self.tick)

    def tick(self) -> None:
        """Whoever comes late gets the newest of each policy."""
        if self._socket.new_subscribers():
            for each in self._newest.values():
                self._socket.publish(each.to_message())

    def publish(
        self,
        *,
        final: bool = False,
        env_steps: int = 0,
        network: torch.nn.Module | None = None,
        policy: str = "default",
        **more: Any,
    ) -> Parameters:
        """Publishes the next version; its iteration is ten times its number.

        ``more``: further info, such as generation and settings of a trial that has loaded another.
        """
        self.version += 1
        modules = {"network": network or self.network}
        flat = read_flat(modules)
        info = {
            "time": 1.0,
            "iteration": 10 * self.version,
            "message": f"version {self.version}",
            "hash": parameter_hash(flat),
            "env_steps": env_steps,
            "final": final,
            **more,
        }
        parameters = self._newest[policy] = Parameters(
            flat,
            manifest_of(named_tensors(modules)),
            self.version,
            self.incarnation,
            10 * self.version,
            info,
            policy,
        )
        self._socket.publish(parameters.to_message())
        return parameters
