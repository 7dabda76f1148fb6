"""Bytes on the wire and processor time of 1 to 256 agents on another machine that send and poll.

Two network namespaces are the machines, with CURVE keys and a cable of 1 Gbit/s (cable.py). Agents
only send experience and fetch parameters, at the rates of CartPole behind a simulator of 20 ms a
step; the learner only publishes: a small network, or one of 6.7 MB, whole or as float16
(`parameter_publish.encoding: half`). The small one again over a cable whose round trip takes 20 ms.
Needs root. Writes benchmarks/results/fleet.json.

    python benchmarks/fleet.py [--agents 1 16 64 256] [--seconds 30] [--name small]
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
from cable import HOST, Machines, round_trip, sent_bytes, two_machines
from machine import machine, write_result
from tables import OF_RATES, grid, load_before, provenance
from worker import Worker

HERE = Path(__file__).resolve().parent
OURS = HERE / "ours"
sys.path.append(str(OURS))

from services import Services  # noqa: E402

AGENTS = (1, 16, 64, 256)
NETWORKS = ("small", "large", "half")
RATE, LINK_BYTES = "1gbit", 125e6
# Round trip in seconds -> networks. Python is too slow to fill a delayed cable with many flows.
CABLES = {0.0: NETWORKS, 0.02: ("small",)}
# An agent of one environment whose simulator takes 20 ms: 50 rows/s.
ROWS, CHUNK_SECONDS = 20, 0.4
POLL_SECONDS, PUBLICATIONS_PER_SECOND = 1.0, 10.0
_SETTLE_SECONDS = 2.0
HALF = ", as float16"
ON_PAPER = (10, 100, 500)


def measure(
    machines: Machines, folder: Path, agents: int, network: str, seconds: float
) -> dict[str, Any]:
    """Measures one number of agents with one network."""
    settings = {
        "session_config.launcher.host": HOST,
        "session_config.agent.num": agents,
        "learner_config.replay.capacity": 200_000,
    }
    host, guest = machines["host"], machines["guest"]
    with ExitStack() as stack:
        services = stack.enter_context(Services(folder, settings, prefix=host))
        fetching = (str(OURS / "fetching.py"), str(folder), "learner", network)
        learner = stack.enter_context(Worker(*host, sys.executable, *fetching))
        names = [f"agent-{index}" for index in range(agents)]
        joining = (str(OURS / "joining.py"), str(folder), *names)
        fleet = stack.enter_context(Worker(*guest, sys.executable, *joining))
        size_bytes = int(learner.ask("publish")["size_bytes"])
        time.sleep(_SETTLE_SECONDS)
        rates = {"rows": ROWS, "chunk_seconds": CHUNK_SECONDS, "poll_seconds": POLL_SECONDS}
        learner.ask("repeat")
        fleet.ask("work", seconds=_SETTLE_SECONDS, **rates)
        before = {name: sent_bytes(words) for name, words in machines.items()}
        used = {kind: services.cpu_seconds(kind) for kind in ("ps", "replay")}
        fleet.start("work", seconds=seconds, **rates)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            learner.ask("publish")
            time.sleep(1.0 / PUBLICATIONS_PER_SECOND)
        found = fleet.finish()
        passed = found["seconds"]
        sent = {name: sent_bytes(words) - before[name] for name, words in machines.items()}
        cpu = {kind: services.cpu_seconds(kind) - used[kind] for kind in used}
        living = {kind: psutil.Process(services.pids(kind)[0]) for kind in used}
        descriptors = {kind: each.num_fds() for kind, each in living.items()}
        memory = {kind: each.memory_info().rss / 2**20 for kind, each in living.items()}
    return {
        "agents": agents,
        "network": network,
        "network_bytes": size_bytes // (2 if network == "half" else 1),
        "rows_per_second": found["rows"] / passed,
        "fetches_per_second": found["fetched"] / passed,
        "held_back_chunks": found["held_back"],
        "bytes_per_second": {"to_agents": sent["host"] / passed, "to_run": sent["guest"] / passed},
        "cpu_share": {kind: seconds / passed for kind, seconds in cpu.items()},
        "descriptors": descriptors,
        "memory_mib": {kind: round(each) for kind, each in memory.items()},
    }


def fleet_document(found: Mapping[str, Any]) -> str:
    """Formats what was measured."""
    late = [row for row in found["fleet"] if row["delay_ms"]]
    taken = statistics.median(row["round_trip_ms"] for row in late)
    delayed = f"The same over a cable with a delay, whose round trip takes {taken:.0f} ms:"
    return "\n\n".join([_table(_undelayed(found)), _where(found), delayed, _table(late)])


def fleet_summary(found: Mapping[str, Any]) -> str:
    """Formats what fleets would take, on paper."""
    return "\n\n".join([EXTRAPOLATED, extrapolate(_undelayed(found)), _where(found)])


def _undelayed(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row for row in found["fleet"] if not row["delay_ms"]]


def _where(found: Mapping[str, Any]) -> str:
    return f"{provenance(found['machine'], OF_RATES)} {load_before(found)}"


def _table(found: Iterable[Mapping[str, Any]]) -> str:
    rows = []
    for row in found:
        sent, agents, cpu = row["bytes_per_second"], row["agents"], row["cpu_share"]
        rows.append(
            [
                f"{row['network_bytes'] / 1e6:.2g} MB{HALF if row['network'] == 'half' else ''}",
                f"{agents}",
                f"{row['rows_per_second']:,.0f}",
                f"{sent['to_run'] / 1e3 / agents:.1f} kB/s",
                f"{sent['to_agents'] / 1e3 / agents:,.0f} kB/s",
                f"{row['fetches_per_second'] / agents:.2f}",
                f"{100 * sent['to_agents'] / LINK_BYTES:.1f} %",
                f"{1e3 * cpu['replay'] / agents:.2f} ms, {row['descriptors']['replay']}",
                f"{1e3 * cpu['ps'] / agents:.2f} ms, {row['descriptors']['ps']}",
            ]
        )
    head = [
        "network",
        "agents",
        "rows/s",
        "from each agent",
        "to each agent",
        "fetches/s of each",
        "of the cable",
        "replay: processor time per agent and second, descriptors",
        "parameter server",
    ]
    return grid(head, rows)


EXTRAPOLATED = "On paper, from what each further agent cost; more than 100 % does not go:"


def extrapolate(rows: list[dict[str, Any]]) -> str:
    """Formats what so many agents would take."""
    lines = []
    for agents in ON_PAPER:
        line = [f"{agents}"]
        for network in NETWORKS:
            size = next(row["network_bytes"] for row in rows if row["network"] == network)
            line.append(_share(agents * size / POLL_SECONDS / LINK_BYTES))
        least, most = (
            pick(row for row in rows if row["network"] == "small") for pick in (_fewest, _most)
        )
        more = most["agents"] - least["agents"]
        sent = most["bytes_per_second"]["to_run"] - least["bytes_per_second"]["to_run"]
        line.insert(1, _share(agents * sent / more / LINK_BYTES))
        for kind in ("replay", "ps"):
            share = (most["cpu_share"][kind] - least["cpu_share"][kind]) / more
            files = (most["descriptors"][kind] - least["descriptors"][kind]) / more
            line.append(f"{100 * (least['cpu_share'][kind] + agents * share):.0f} %")
            line.append(f"{least['descriptors'][kind] + agents * files:.0f}")
        lines.append(line)
    head = [
        "agents",
        "of the cable: rows",
        "parameters of 0.07 MB",
        "of 6.7 MB",
        "of 6.7 MB as float16",
        "replay: of a core",
        "descriptors",
        "parameter server: of a core",
        "descriptors",
    ]
    return grid(head, lines)


def _share(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:,.0f} %"


def _fewest(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return min(rows, key=lambda row: int(row["agents"]))


def _most(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return max(rows, key=lambda row: int(row["agents"]))


def main() -> None:
    """Measures, prints the table and writes the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=int, nargs="+", default=list(AGENTS))
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--name", default="fleet", help="of the file with the results")
    given = parser.parse_args()
    found: dict[str, Any] = {
        "machine": machine(),
        "load": round(os.getloadavg()[0], 2),
        "link": RATE,
        "fleet": [],
    }
    for delay, networks in CABLES.items():
        with (
            two_machines(RATE, delay) as machines,
            tempfile.TemporaryDirectory(prefix="sl-fleet-") as folder,
        ):
            passed = {"delay_ms": 1e3 * delay, "round_trip_ms": 1e3 * round_trip(machines)}
            for network, agents in itertools.product(networks, given.agents):
                place = Path(folder) / f"{network}-{agents}"
                row = measure(machines, place, agents, network, given.seconds)
                found["fleet"].append(passed | row)
                print(row, file=sys.stderr, flush=True)
                write_result(given.name, found)
    print(fleet_document(found))


if __name__ == "__main__":
    main()
