"""Agents that only send and poll, as many as are asked for, each with sockets of its own.

python joining.py RUN_FOLDER AGENT...
"""

from __future__ import annotations

import heapq
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "peers")]

from rows import Columns, make_columns  # noqa: E402
from services import play  # noqa: E402
from worker import Answer, serve  # noqa: E402

from session.process.context import Context  # noqa: E402
from session.wire.socket_state import poll  # noqa: E402
from surreal_like.experience.chunk import Chunk  # noqa: E402
from surreal_like.experience.chunk_sender import ExpSender  # noqa: E402
from surreal_like.ps.parameter_client import ParameterClient  # noqa: E402
from surreal_like.ps.schemas import ANSWERS  # noqa: E402

_PAUSE_SECONDS = 0.01


class Agent:
    """One agent.

    Args:
        context: context of its component.
    """

    def __init__(self, context: Context) -> None:
        self.sender = ExpSender(context, context.config.session_config.sender)
        self.client = ParameterClient(context.wire.dealer("ps.requests", ANSWERS), context.clock)
        self.fetched = self.held_back = 0

    def look(self) -> None:
        """Reads acks and parameters that have arrived."""
        self.sender.pump()
        if self.client.waiting and self.client.receive() is not None:
            self.fetched += 1


class Joining:
    """Rounds of all agents.

    Args:
        contexts: contexts of the agents.
    """

    def __init__(self, contexts: list[Context]) -> None:
        self._agents = [Agent(context) for context in contexts]

    def work(
        self, *, seconds: float, rows: int, chunk_seconds: float, poll_seconds: float
    ) -> Answer:
        """Sends chunks and polls, each agent at these intervals; returns the totals."""
        columns, agents = make_columns("small", rows, 1), self._agents
        for agent in agents:
            agent.fetched = agent.held_back = 0
        begin, used = time.monotonic(), time.process_time()
        before = sum(agent.sender.window.inserted for agent in agents)
        due = [
            (begin + every * number / len(agents), number, every)
            for number in range(len(agents))
            for every in (chunk_seconds, poll_seconds)
        ]
        heapq.heapify(due)
        while (now := time.monotonic()) < begin + seconds:
            while due[0][0] <= now:
                at, number, every = due[0]
                heapq.heapreplace(due, (at + every, number, every))
                agent = agents[number]
                if every == poll_seconds:
                    agent.client.ask()
                elif agent.sender.window.ready:
                    _send(agent.sender, columns)
                else:
                    agent.held_back += 1
            for agent in agents:
                agent.look()
            poll([], _PAUSE_SECONDS)
        passed = time.monotonic() - begin
        return {
            "seconds": passed,
            "cpu_seconds": time.process_time() - used,
            "rows": sum(agent.sender.window.inserted for agent in agents) - before,
            "held_back": sum(agent.held_back for agent in agents),
            "fetched": sum(agent.fetched for agent in agents),
        }


def _send(sender: ExpSender, columns: Columns) -> None:
    chunk = Chunk(columns, 0, [0], overlap=0)
    chunk.env_steps = chunk.count_steps()
    sender.send(chunk)


if __name__ == "__main__":
    with play(sys.argv[1], *sys.argv[2:]) as contexts:
        serve({"work": Joining(contexts).work})
