"""Parameters from the learner to the agents: a poll without changes, a network of 6.7 MB.

Learner, parameter server and agent are processes of their own on ipc sockets. The poll is compared
with a bare pyzmq round trip of the same size in bytes. Prints tables and JSON, and writes
benchmarks/results/parameters.json.

    python benchmarks/parameters.py [--rounds 15]
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from compare import Found, Group, Line, Side, keep, measure
from setting import Given, arguments
from worker import Worker

HERE = Path(__file__).resolve().parent
OURS = HERE / "ours"
sys.path += [str(OURS), str(HERE / "peers")]

from services import Services  # noqa: E402

POLLS = 2000
PUBLICATIONS = 10
PAUSE_SECONDS = 0.02


class Bench:
    """The processes of both sides.

    Args:
        given: the command line.
        stack: closes the processes.
    """

    def __init__(self, given: Given, stack: ExitStack) -> None:
        folder = str(given.folder / "run")
        stack.enter_context(Services(given.folder / "run", {}, kinds=("ps",)))
        address = f"ipc://{given.folder}/bare"
        fetching = str(OURS / "fetching.py")
        router = subprocess.Popen([sys.executable, fetching, "router", address])
        stack.callback(router.wait)
        stack.callback(router.kill)
        python = sys.executable
        self._bare = stack.enter_context(Worker(python, fetching, "dealer", address))
        self._agent = stack.enter_context(Worker(python, fetching, folder, "agent-0"))
        self._learner = stack.enter_context(Worker(python, fetching, folder, "learner"))
        self.size_bytes = int(self._learner.ask("publish")["size_bytes"])
        time.sleep(1.0)
        # The server may have started after the first publication.
        self._learner.ask("repeat")
        self._agent.ask("follow", version=1)

    def bare(self) -> float:
        """Returns the microseconds of a bare round trip."""
        return 1e6 * float(self._bare.ask("polls", count=POLLS)["seconds"])

    def poll(self) -> float:
        """Returns the microseconds of a poll without changes."""
        return 1e6 * float(self._agent.ask("polls", count=POLLS)["seconds"])

    def publish(self) -> dict[str, float]:
        """Returns milliseconds from a publication to its use, and those spent by the learner."""
        times: dict[str, list[float]] = {"in use": [], "learner": []}
        version = int(self._learner.ask("publish")["version"])
        self._agent.ask("follow", version=version)
        for number in range(version + 1, version + 1 + PUBLICATIONS):
            self._agent.start("follow", version=number)
            time.sleep(PAUSE_SECONDS)
            publication = self._learner.ask("publish")
            loaded = float(self._agent.finish()["loaded"])
            times["in use"].append(1e3 * (loaded - float(publication["began"])))
            times["learner"].append(1e3 * float(publication["seconds"]))
        return {what: sorted(each)[len(each) // 2] for what, each in times.items()}


def polled(given: Given, bench: Bench) -> Found:
    """Measures the poll."""
    return measure(
        Group(
            "A poll that changes nothing",
            "us",
            "less",
            f"Median of {POLLS} in a row; DEALER and ROUTER over ipc, one asker.",
            [
                Side("ours", "surreal_like", "ParameterClient, ParameterServer", bench.poll),
                Side("bare", "bare pyzmq", "send, poll, recv; poll, recv, send", bench.bare),
            ],
            [Line("round trip", "ours", ("bare",), "1.5 x, aim 1.2 x")],
        ),
        given.rounds,
    )


def published(given: Given, bench: Bench) -> Found:
    """Measures the transfer of a network."""
    did = (
        "read_flat, Publisher, ParameterServer, ParameterClient, load_flat; "
        "the agent asks again 1 ms after each answer"
    )
    return measure(
        Group(
            "A network from learner to agent",
            "ms",
            "less",
            f"{bench.size_bytes / 1e6:.1f} MB in 10 tensors, on the CPU; median of {PUBLICATIONS} "
            "publications in a round.",
            [Side("ours", "surreal_like", did, bench.publish)],
            [
                Line("from the call of publish to its use", "ours in use", (), "25, aim 10"),
                Line("of which the learner itself spends", "ours learner"),
            ],
        ),
        given.rounds,
    )


def main() -> None:
    """Measures, prints the tables and writes the results."""
    with arguments(__doc__) as given, ExitStack() as stack:
        bench = Bench(given, stack)
        keep("parameters", [polled(given, bench), published(given, bench)], {}, {})


if __name__ == "__main__":
    main()
