"""A machine that joined tries to end, to steer and to spoil a run; its own evaluator solves it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zmq

import surreal_like
from session.errors import AdmissionError
from session.folder import RunFolder
from session.launchers.handle import RunHandle
from session.wire import AddressBook, Identity, Message, Wire
from session.wire.requests import DealerSocket
from session.wire.security import Security
from session.wire.socket_state import poll
from surreal_like.addons.join.admission_client import Admission, Invitation, request_admission
from surreal_like.addons.join.tokens import make_token
from tests.polling import until
from tests.runs.command import CARTPOLE, read_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

STEPS = 10**8
SCORE = {
    **dict.fromkeys(("mean_return", "min_return", "max_return"), 499.0),
    "std_return": 0.0,
    "episodes": 100,
    "incarnation": 1,
    "version": 1,
    "iteration": 1,
    "env_steps": 1,
    "confirm": False,
    "mode": "eval_deterministic",
}
ACCOUNT = {
    **dict.fromkeys(("pushed", "inserted", "env_steps", "episodes"), STEPS),
    "dropped": 0,
    "unacked": 0,
    "final": True,
}


class Attacker:
    """A machine that has joined a run, and keeps to no rule of it.

    Args:
        run: the run.
        path: for its own files.
    """

    def __init__(self, run: RunFolder, path: Path) -> None:
        door = AddressBook.load(run.addresses)["ps.join"].connect.removeprefix("tcp://")
        self.admission: Admission = request_admission(
            Invitation(door, make_token(run.keys), 1, folder=path)
        )
        # It finds out by itself what it was not told.
        self._book = AddressBook.load(run.addresses)
        self._fingerprint = bytes.fromhex(self.admission.config.fingerprint()[:16])
        self._security = Security.load(self.admission.folder.keys)
        self._context: zmq.Context[Any] = zmq.Context()
        self._wires: list[Wire] = []

    def wire(self, name: str) -> Wire:
        identity = Identity(name, time.time_ns() // 1_000_000, self._fingerprint)
        self._wires.append(Wire(self._context, self._book, identity, security=self._security))
        return self._wires[-1]

    def ask(self, dealer: DealerSocket, kind: str, **fields: Any) -> str:
        """The kind of what is answered."""
        until(lambda: dealer.send(kind, fields))
        return until(dealer.receive).kind

    def close(self) -> None:
        for wire in self._wires:
            wire.close(0)
        self._context.destroy(0)


@pytest.fixture
def run(run_folder: Path) -> Iterator[RunHandle]:
    stop = {"eval_return": 195, "seconds": 250}
    made = surreal_like.launch(
        CARTPOLE,
        folder=run_folder,
        host="127.0.0.1",
        seed=1,
        overrides={"session_config.stop": stop},
    )
    yield made
    if made.running:
        made.stop(interrupted=True)
        made.wait(60.0)


@pytest.fixture
def attacker(run: RunHandle, tmp_path: Path) -> Iterator[Attacker]:
    made = Attacker(run.folder, tmp_path / "guest")
    yield made
    made.close()


def chunk() -> Message:
    """One row that claims to be many."""
    columns: dict[str, npt.NDArray[Any]] = {
        "step_type": np.ones((1, 1), np.uint8),
        "reward": np.zeros((1, 1), np.float32),
        "discount": np.ones((1, 1), np.float32),
        "version": np.zeros((1, 1), np.int64),
        "obs": np.zeros((1, 1, 4), np.float32),
        "action": np.zeros((1, 1), np.int64),
    }
    fields: dict[str, Any] = {"seq": 2, "streams": [0], "policy": "default", "rows": STEPS}
    fields |= {"env_steps": STEPS, "episodes": 0, "finished": [], "tail": False, "overlap": 0}
    fields |= {"acked": 1, "acked_rows": STEPS - 1, "filled": 0.0, "stamps": {}}
    return Message("chunk", fields, columns)


def test_a_joined_machine_spoils_only_its_own_rows(run: RunHandle, attacker: Attacker) -> None:
    (name,) = attacker.admission.names
    until(lambda: read_lines(run.folder.progress))
    own = attacker.wire(name)
    control = own.dealer("learner.control")
    for kind in ("pause", "stop", "evaluated"):
        control.send(kind, dict(SCORE))
    with pytest.raises(AdmissionError, match=r"learner\.control"):
        until(lambda: own.check() and None)
    for other in ("learner", "agent-0", "eval-0"):
        dealer = attacker.wire(other).dealer("ps.requests")
        hello = {"name": other, "incarnation": 1 << 52, "fresh": True, "protocol": 4}
        assert attacker.ask(dealer, "hello", **hello) == "refused"
        assert attacker.ask(dealer, "leave", policy="default", account=ACCOUNT) == "refused"
    push, theirs = own.push("replay-0.experience"), attacker.wire("agent-0")
    until(lambda: push.send(chunk()))
    as_other = theirs.push("replay-0.experience")
    until(lambda: as_other.send(chunk()))
    asking = own.dealer("ps.requests")
    assert attacker.ask(asking, "leave", policy="default", account=ACCOUNT) in ("noted", "refused")
    poll([], 0.5)
    assert run.wait(300.0).status == "stopped"
    result = run.folder.read_result() or {}
    # By its own evaluator, and not by a budget or the score of 499.
    assert "eval_return 195 reached" in result["reason"]
    assert 499.0 not in (result["eval"]["mean_return"], result["best_eval"]["mean_return"])
    assert result["env_steps"] < STEPS / 100
    assert result["senders"].get(name, {"env_steps": 0})["env_steps"] <= 1
    refused = [
        each["detail"] for each in read_lines(run.folder.events) if each["event"] == "refused"
    ]
    for other in ("learner", "agent-0", "eval-0"):
        assert any(f"'{other}'" in each and "is for agent-1000 only" in each for each in refused)
    assert len(refused) < 20
