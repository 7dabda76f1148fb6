"""An agent's side: what it costs to send experience. Rounds of :mod:`worker`.

python sending.py RUN_FOLDER AGENT...
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "peers")]

import numpy as np  # noqa: E402
from rows import Played, make_chunks, make_columns, row_bytes  # noqa: E402
from services import play  # noqa: E402
from worker import Answer, serve  # noqa: E402

from session.process.context import Context  # noqa: E402
from session.wire.socket_state import poll  # noqa: E402
from surreal_like.addons.scripts.wrapper import ExpSenderWrapper  # noqa: E402
from surreal_like.experience.chunk import Chunk  # noqa: E402
from surreal_like.experience.chunk_sender import ExpSender  # noqa: E402
from surreal_like.experience.row_buffer import RowBuffer  # noqa: E402

_POLL_SECONDS = 0.01
_SETTLE_SECONDS = 30.0


class Sending:
    """Chunks that one process sends for one agent or several.

    Args:
        contexts: of the agents.
    """

    def __init__(self, contexts: list[Context]) -> None:
        self._contexts = contexts
        self._senders: dict[str, ExpSender] = {}
        self._envs: dict[tuple[str, int], tuple[ExpSenderWrapper, Any]] = {}

    def handlers(self) -> dict[str, Callable[..., Answer]]:
        """Returns the operations by name."""
        return {
            "steps": self.steps,
            "rows": self.rows,
            "chunks": self.chunks,
            "paced": self.paced,
        }

    def _sender(self, context: Context) -> ExpSender:
        if context.name not in self._senders:
            settings = context.config.session_config.sender
            self._senders[context.name] = ExpSender(context, settings)
        return self._senders[context.name]

    def _env(self, kind: str, num_envs: int) -> ExpSenderWrapper:
        """An environment and an agent of its own, for an agent has one sender; the first sends
        chunks that were made before.
        """
        key = (kind, num_envs)
        if key not in self._envs:
            context = self._contexts[1 + len(self._envs)]
            env = ExpSenderWrapper(Played(kind, num_envs), context=context)
            env.reset()
            self._envs[key] = (env, context)
        return self._envs[key][0]

    def steps(self, *, kind: str, num_envs: int, seconds: float) -> Answer:
        """Steps an environment through ExpSenderWrapper; done when replay has confirmed it all."""
        env = self._env(kind, num_envs)
        window = env.sender.window
        action = np.ones(num_envs, np.int64)
        before = window.inserted
        begin = time.perf_counter()
        end = begin + seconds
        while time.perf_counter() < end:
            # As an agent's loop does before each step.
            _wait(env.sender)
            env.step(action)
        _settle(env.sender)
        return {"rows": window.inserted - before, "seconds": time.perf_counter() - begin}

    def rows(self, *, kind: str, length: int, num_envs: int, seconds: float) -> Answer:
        """Writes row after row into a RowBuffer and sends its chunks; nothing is stepped."""
        sender, played = self._sender(self._contexts[0]), Played(kind, num_envs)
        buffer = RowBuffer(
            length, num_envs, obs_spec=played.obs_spec, action_spec=played.action_spec
        )
        action = np.ones(num_envs, np.int64)
        obs, _ = played.reset()
        reward, ended = np.zeros(num_envs, np.float32), np.zeros(num_envs, np.bool_)
        never, before = ended, sender.window.inserted
        begin = time.perf_counter()
        # Once per chunk, for a look at the clock is no small part of what a row costs.
        while time.perf_counter() < begin + seconds:
            for _row in range(length):
                buffer.write(
                    {
                        "obs": obs,
                        "reward": reward,
                        "terminated": ended,
                        "truncated": never,
                        "action": action,
                    }
                )
                obs, reward, ended, never, _ = played.step(action)
            _wait(sender)
            _send(sender, buffer.cut(), num_envs)
        _settle(sender)
        passed = time.perf_counter() - begin
        return {"rows": sender.window.inserted - before, "seconds": passed}

    def chunks(
        self,
        *,
        kind: str,
        length: int,
        num_envs: int,
        seconds: float,
        least: int = 0,
        overlap: int = 0,
    ) -> Answer:
        """Sends chunks that have been made before for a while, and at least so many; done when
        replay has confirmed them all.
        """
        sender = self._sender(self._contexts[0])
        made = make_chunks(kind, length, num_envs)
        before, count = sender.window.inserted, 0
        begin = time.perf_counter()
        while count < least or time.perf_counter() < begin + seconds:
            _wait(sender)
            _send(sender, made[count % len(made)], num_envs, overlap)
            count += 1
        _settle(sender)
        passed = time.perf_counter() - begin
        size = row_bytes(made[0])
        return {"rows": sender.window.inserted - before, "seconds": passed, "row_bytes": size}

    def paced(
        self, *, length: int, num_envs: int, agents: int, chunks: int, per_second: float
    ) -> Answer:
        """Sends chunks of several agents in turn, at a given rate; how long that really took."""
        senders = [self._sender(context) for context in self._contexts[:agents]]
        columns = make_columns("small", length, num_envs)
        before = sum(sender.window.inserted for sender in senders)
        begin = time.perf_counter()
        used = time.process_time()
        for number in range(chunks):
            sender = senders[number % agents]
            while time.perf_counter() < begin + number / per_second or not sender.window.ready:
                sender.pump()
                poll([sender.socket], 0.001)
            _send(sender, columns, num_envs)
        for sender in senders:
            _settle(sender)
        passed = time.perf_counter() - begin
        rows = sum(sender.window.inserted for sender in senders) - before
        return {"rows": rows, "seconds": passed, "cpu_seconds": time.process_time() - used}


def _send(sender: ExpSender, columns: dict[str, Any], num_envs: int, overlap: int = 0) -> None:
    chunk = Chunk(columns, 0, list(range(num_envs)), overlap=overlap)
    chunk.env_steps = chunk.count_steps()
    sender.send(chunk)


def _wait(sender: ExpSender) -> None:
    """Waits until another chunk may be sent."""
    while not sender.window.ready:
        sender.pump()
        if not sender.window.ready:
            poll([sender.socket], _POLL_SECONDS)


def _settle(sender: ExpSender) -> None:
    """Waits until replay has confirmed everything."""
    deadline = time.perf_counter() + _SETTLE_SECONDS
    sender.pump()
    while not sender.window.empty:
        if time.perf_counter() > deadline:
            raise RuntimeError(f"replay has not confirmed {sender.window.unacked} rows")
        poll([sender.socket], _POLL_SECONDS)
        sender.pump()


if __name__ == "__main__":
    with play(sys.argv[1], *sys.argv[2:]) as contexts:
        serve(Sending(contexts).handlers())
