"""Chunks byte for byte: a table of cases, each with the digest of all that the sender keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from session.wire.codec import encode
from surreal_like.addons.scripts.wrapper import ExpSenderWrapper
from surreal_like.env.vector import SyncVector
from surreal_like.experience import chunk_sender
from surreal_like.experience.chunk_sender import acting_of
from surreal_like.experience.send_window import Kept, SenderWindow
from tests.surreal_like.agent.rig import Count, Rig, make_rig

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "chunks.json"
UNROLLS = {"replay": {"type": "FIFOReplay"}}


@dataclass
class Case:
    """One agent's life.

    Attributes:
        does: the calls, in order: see ``DO``.
        lengths: of the episodes of each stream.
        ends: how they end, see :class:`Count`.
        sender: ``session_config.sender``.
        learner: ``learner_config``.
        env: ``env_config``.
    """

    does: str
    lengths: tuple[int, ...] = (3, 4)
    ends: str = "TU"
    sender: Mapping[str, Any] = field(default_factory=dict)
    learner: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)


CASES = {
    "whole chunks": Case("reset step*9"),
    "a reset inside an episode": Case("reset step*2 reset step*6 finish"),
    "a reset at an end": Case("reset step*3 reset step*3 finish", lengths=(3, 3)),
    "resets without a step": Case("reset reset step*5 finish"),
    "the end in the middle of an episode": Case("reset step*6 finish"),
    "the end before a step": Case("reset finish"),
    "both ends at once": Case("reset step*11 finish", ends="BT"),
    "episodes of one step": Case("reset step*7 finish", lengths=(1, 2)),
    "extras": Case("reset extras*9 finish"),
    "versions": Case("reset step version step*2 version step*6 finish"),
    "the agent's own numbers": Case("reset metrics step*9 finish"),
    "cut at the ends of episodes": Case(
        "reset step*9 finish", lengths=(3,), sender={"cut": "episodes", "flush_iteration": 100}
    ),
    "short chunks after some seconds": Case(
        "reset step*2 wait pump step*3 wait step*2 finish", sender={"flush_time": 1.0}
    ),
    "a short chunk before the row of an end has its action": Case(
        "reset step*3 wait pump step*3 finish", sender={"flush_time": 1.0}
    ),
    "short chunks while the environment steps": Case(
        "reset step*3 slow step*2 slow step*3 finish", sender={"flush_time": 1.0}
    ),
    "unrolls": Case("reset step*13 finish", learner=UNROLLS),
    "unrolls with a reset": Case("reset step*6 reset step*7 finish", learner=UNROLLS),
    "unrolls of stacked frames": Case(
        "reset step*13 finish", learner=UNROLLS, env={"frame_stack": 3}
    ),
}


class Life:
    """Plays a case, and notes what the sender keeps."""

    def __init__(self, rig: Rig, case: Case) -> None:
        self.rig = rig
        self.context = rig.context("agent-0")
        vector = SyncVector(
            [Count(length, case.ends) for length in case.lengths],
            obs_spec=Count.obs_spec,
            action_spec=Count.action_spec,
            info_keys=("clock",),
        )
        self.env = ExpSenderWrapper(vector, context=self.context)
        self.vector = vector
        self.steps = 0
        self.do: dict[str, Callable[[], object]] = {
            "reset": self.env.reset,
            "step": self._step,
            "extras": self._step_with_extras,
            "version": self._version,
            "metrics": self._metrics,
            "wait": self._wait,
            "pump": self.env.pump,
            "slow": self._slow_step,
            "finish": self.env.finish,
        }

    def _actions(self) -> Any:
        self.steps += 1
        self.rig.clock.seconds += 0.001
        return np.arange(self.steps, self.steps + self.env.num_envs) % 3

    def _step(self) -> None:
        self.env.step(self._actions())

    def _step_with_extras(self) -> None:
        n = self.env.num_envs
        extras = {
            "values": np.full((n, 3), self.steps, np.float32),
            "state": {"h": np.ones((n, 2))},
        }
        self.env.step((self._actions(), extras))

    def _slow_step(self) -> None:
        step = self.vector.step

        def slow(actions: Any) -> Any:
            self._wait()
            self.env.pump()
            return step(actions)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.vector, "step", slow)
            self._step()

    def _version(self) -> None:
        acting_of(self.context).version += 3

    def _metrics(self) -> None:
        acting_of(self.context).metrics = {"epsilon": 0.5}

    def _wait(self) -> None:
        self.rig.clock.seconds += 2.0


def digest(case: Case, monkeypatch: pytest.MonkeyPatch) -> str:
    """SHA-256 over all frames of all messages, in order."""
    kept: list[Kept] = []
    keep = SenderWindow.keep

    def note(window: SenderWindow, one: Kept) -> None:
        # Now: what leaves later carries the acks of that moment.
        for frame in encode(one.message):
            frames.update(frame.bytes if isinstance(frame, zmq.Frame) else frame)
        kept.append(one)
        keep(window, one)

    frames = hashlib.sha256()
    monkeypatch.setattr(SenderWindow, "keep", note)
    monkeypatch.setattr(chunk_sender, "boot_number", lambda: 1.0)
    monkeypatch.setattr(chunk_sender, "TRACE_EVERY", 2)
    with make_rig(env=case.env, sender=dict(case.sender)) as rig:
        rig.config.learner_config.update(case.learner)
        life = Life(rig, case)
        for word in case.does.split():
            name, _, times = word.partition("*")
            for _ in range(int(times or 1)):
                life.do[name]()
    return f"{len(kept)} {frames.hexdigest()}"


@pytest.mark.parametrize("name", CASES)
def test_chunks_are_the_same_byte_for_byte(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert digest(CASES[name], monkeypatch) == json.loads(GOLDEN.read_text())[name]
