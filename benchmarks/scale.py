"""Cost of a further agent, and of a second shard, in processor seconds of replay.

Simulated senders, each with its own sockets and acks, send prebuilt chunks at one fixed total rate,
so that costs are compared and not speeds. Prints tables and JSON, and writes
benchmarks/results/scale.json.

    python benchmarks/scale.py [--rounds 15] [--seconds 0.7]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from compare import Found, Group, Line, Side, keep, measure
from setting import Given, arguments
from worker import Worker

HERE = Path(__file__).resolve().parent
OURS = HERE / "ours"
sys.path += [str(OURS), str(HERE / "peers")]

from services import Services  # noqa: E402

AGENTS = (1, 4, 16, 64, 256)
CHUNKS_PER_SECOND = 300.0
# A second process costs processor time even when idle, so shards are measured at a low and at a
# high rate.
SHARDED_CHUNKS_PER_SECOND = (300.0, 1000.0)
LENGTH, STREAMS = 100, 8
PER_REQUEST = 8


class Run:
    """Services of one run, and the processes in the roles of its agents and its learner.

    Args:
        given: the command line.
        stack: closes the processes.
        name: of the run folder.
        agents: number of simulated senders.
        shards: number of replay shards.
    """

    def __init__(
        self, given: Given, stack: ExitStack, name: str, *, agents: int, shards: int = 1
    ) -> None:
        folder = given.folder / name
        settings = {
            "learner_config.replay.replay_shards": shards,
            "learner_config.replay.batch_size": 256,
            "session_config.agent.num": agents,
        }
        self._seconds = given.seconds
        self._services = stack.enter_context(Services(folder, settings))
        names = [f"agent-{index}" for index in range(agents)]
        self._senders = stack.enter_context(
            Worker(sys.executable, str(OURS / "sending.py"), str(folder), *names)
        )
        self._learner = stack.enter_context(
            Worker(sys.executable, str(OURS / "sampling.py"), str(folder))
        )

    def cost(self, agents: int) -> dict[str, float]:
        """Returns processor seconds of replay, and of all senders together, per million rows."""
        count = max(agents, int(CHUNKS_PER_SECOND * self._seconds))
        before = self._services.cpu_seconds()
        answer = self._senders.ask(
            "paced",
            length=LENGTH,
            num_envs=STREAMS,
            agents=agents,
            chunks=count,
            per_second=CHUNKS_PER_SECOND,
        )
        rows = answer["rows"] / 1e6
        return {
            "replay": (self._services.cpu_seconds() - before) / rows,
            "senders": answer["cpu_seconds"] / rows,
        }

    def in_and_out(self, per_second: float) -> float:
        """Returns processor seconds of all shards per million rows in, each sampled once."""
        count = int(per_second * self._seconds)
        rows = count * LENGTH * STREAMS
        before = self._services.cpu_seconds()
        self._learner.start("batches", per_request=PER_REQUEST, seconds=0.0, least=rows // 256)
        self._senders.ask(
            "paced",
            length=LENGTH,
            num_envs=STREAMS,
            agents=2,
            chunks=count,
            per_second=per_second,
        )
        self._learner.finish()
        return (self._services.cpu_seconds() - before) / rows * 1e6


def per_agent(given: Given, stack: ExitStack) -> Found:
    """Measures one run for each number of agents, in turn."""
    sides = []
    for agents in AGENTS:
        run = Run(given, stack, f"agents-{agents}", agents=agents)
        run.cost(agents)

        def once(run: Run = run, agents: int = agents) -> Mapping[str, float]:
            return run.cost(agents)

        did = "simulated senders in one process, each with its own sockets"
        sides.append(Side(f"{agents}", f"with {agents}", did, once))
    lines = []
    for what in ("replay", "senders"):
        for agents in AGENTS[1:]:
            wanted = "1.25 x" if what == "replay" else ""
            line = f"{what}, {agents} agents against 1"
            lines.append(Line(line, f"{agents} {what}", (f"1 {what}",), wanted))
    about = (
        f"Processor seconds per million rows, chunks {LENGTH} x {STREAMS}, "
        f"{CHUNKS_PER_SECOND:g} chunks/s over all agents; senders: of all of them together."
    )
    group = Group("Cost per agent", "s per million rows", "less", about, sides, lines)
    return measure(group, given.rounds)


def two_shards(given: Given, stack: ExitStack) -> Found:
    """Measures the same traffic on one shard and on two."""
    sides = []
    for shards in (1, 2):
        run = Run(given, stack, f"shards-{shards}", agents=2, shards=shards)
        run.in_and_out(SHARDED_CHUNKS_PER_SECOND[0])
        did = "ReplayService; two senders, one learner that asks all shards"
        label = "1 shard" if shards == 1 else f"{shards} shards"
        sides += [
            Side(f"{shards} at {rate:g}", label, did, partial(run.in_and_out, rate))
            for rate in SHARDED_CHUNKS_PER_SECOND
        ]
    about = (
        f"Processor seconds of all shards per million rows in, each sampled once; two senders, "
        f"chunks {LENGTH} x {STREAMS}, batches of 256, {PER_REQUEST} per request."
    )
    lines = [
        Line(
            f"2 shards against 1, {rate:g} chunks/s",
            f"2 at {rate:g}",
            (f"1 at {rate:g}",),
            "1.15 x, aim 1.05 x",
        )
        for rate in SHARDED_CHUNKS_PER_SECOND
    ]
    group = Group("Two shards", "s per million rows", "less", about, sides, lines)
    return measure(group, given.rounds)


def main() -> None:
    """Measures, prints the tables and writes the results."""
    with arguments(__doc__, seconds=0.7) as given:
        groups: list[Any] = []
        for part in (per_agent, two_shards):
            with ExitStack() as stack:
                groups.append(part(given, stack))
        keep("scale", groups, {}, {})


if __name__ == "__main__":
    main()
