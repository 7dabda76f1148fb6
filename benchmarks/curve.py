"""Cost of encryption: the same work over TCP with CURVE on and off, in turn, as ratios.

``wire``: messages per second from one process to another over PUSH and PULL. ``run``: wall time of
CartPole to a fixed number of environment steps, with or without keys on every socket of the run.
Rounds alternate, so that both see the same state of the machine. Prints JSON.

    python benchmarks/curve.py [--rounds 5] [--runs 3] [--env-steps 40000]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from machine import machine, spread
from wire import PAYLOADS, one_round, rates

from session.wire.security import write_keys
from surreal_like.run.train import train

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "cartpole_dqn.yaml"
KINDS = ("plain", "curve")
# Settings that make a run on this machine use TCP, without and with keys.
TRANSPORTS: dict[str, dict[str, Any]] = {
    "plain": {"session_config.launcher.transport": "tcp"},
    "curve": {"session_config.launcher.host": "127.0.0.1"},
}


def measure_wire(rounds: int) -> dict[str, Any]:
    """Measures all payloads; the ratio is throughput with keys to throughput without."""
    table = {}
    for payload in PAYLOADS:
        seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        with tempfile.TemporaryDirectory(prefix="sl-bench-") as folder:
            write_keys(Path(folder))
            for _ in range(rounds):
                for kind, row in seconds.items():
                    keys = folder if kind == "curve" else ""
                    row.append(one_round("ours", payload, keys=keys))
        pairs = zip(seconds["plain"], seconds["curve"], strict=True)
        ratios = [plain / curve for plain, curve in pairs]
        table[payload] = rates(payload, seconds) | {"throughput_ratio": spread(ratios)}
    return table


def measure_runs(runs: int, env_steps: int) -> dict[str, Any]:
    """Measures whole runs; the ratio is wall time with keys to wall time without."""
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    stop = {"eval_return": None, "env_steps": env_steps, "seconds": None}
    with tempfile.TemporaryDirectory(prefix="sl-bench-") as folder:
        for number in range(runs):
            for kind, transport in TRANSPORTS.items():
                settings = {"session_config.stop": stop, **transport}
                path = Path(folder) / f"{kind}-{number}"
                ended = train(CONFIG, overrides=settings, folder=path, seed=number)
                if not ended.ok:
                    raise SystemExit(f"{path} failed: {ended.result.get('reason')}")
                seconds[kind].append(ended.result["wall_seconds"])
    pairs = zip(seconds["plain"], seconds["curve"], strict=True)
    return {
        "config": CONFIG.name,
        "env_steps": env_steps,
        **{f"{kind}_wall_seconds": spread(row) for kind, row in seconds.items()},
        "wall_time_ratio": spread([curve / plain for plain, curve in pairs]),
    }


def main() -> None:
    """Prints the tables as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--env-steps", type=int, default=40_000)
    given = parser.parse_args()
    wire = measure_wire(given.rounds)
    run = measure_runs(given.runs, given.env_steps)
    print(json.dumps({"machine": machine(), "wire": wire, "run": run}, indent=2))


if __name__ == "__main__":
    main()
