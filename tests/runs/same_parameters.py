"""Compares what the shipped experiments learn in two checkouts: equal to the last bit, or not.

``python tests/runs/same_parameters.py ../before [CONFIG.yaml ...]`` runs each experiment for some
updates in one thread, with one seed, in both checkouts. It compares the parameters in the newest
checkpoint of every policy, all chunks that agents sent, in order, and ``progress.jsonl`` without
real times. Exit code 1 if any differ. It is for changes that must not change what is learned.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHUNKS = Path(__file__).with_name("sent_chunks.py")
IN_STEP = f"env_config.env_name={Path(__file__).with_name('in_step.py')}:cartpole"
# Ends of the names of fields that hold real durations, and the name of the run.
REAL = ("_seconds", "_per_second", "run_id")
# Further ways to step and to learn: a config, and words that change it.
WAYS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "dqn, worker processes": (
        "cartpole_dqn",
        ("env_config.vector=process", "env_config.workers=2"),
    ),
    **{
        f"{name}, batched": (f"cartpole_{name}", ("env_config.env_name=gymvec:CartPole-v1",))
        for name in ("dqn", "ppo", "pqn", "impala")
    },
    "dqn, in the step": ("cartpole_dqn", (IN_STEP,)),
    "ppo, in the step": ("cartpole_ppo", (IN_STEP,)),
    "a3c, three agents": ("cartpole_a3c", ("session_config.agent.num=3",)),
}
# Updates that take a few seconds each; Atari frames are slower.
UPDATES = 60
FEWER = {
    "pong_ppo": 3,
    **dict.fromkeys(("bipedalwalker_ppo", "lunarlander_ppo"), 4),
}
# Environments of clients, and of packages that are not installed with this one.
ELSEWHERE = (
    *("cartpole_browser", "cartpole_remote"),
    *("fetchreach_sac", "minatar_dqn", "minatar_ppo", "minatar_pqn"),
    "doorkey_ppo",
)


def run(checkout: Path, config: Path, words: tuple[str, ...], folder: Path) -> dict[str, str]:
    """Runs one experiment with the code of a checkout; returns what is compared, by its name.

    Raises RuntimeError with its output if the run fails.
    """
    stop = (
        f"session_config.stop={{iterations: {FEWER.get(config.stem, UPDATES)}, eval_episodes: 2}}"
    )
    options = ["train", str(config), "--on", "serial", "--quiet", "--seed", "1", "--folder"]
    sent = folder.with_suffix(".chunks")
    done = subprocess.run(
        [sys.executable, "-P", str(CHUNKS), str(sent), *options, str(folder), stop, *words],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    files = dict(newest_parameters(folder))
    if done.returncode not in (0, 3) or not files:  # 3: ended before its goal
        raise RuntimeError(f"{checkout}: {done.stdout}{done.stderr}")
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    progress = json.dumps([without_real(line) for line in lines], sort_keys=True)
    return {
        **{name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()},
        "chunks": sent.read_text(),
        "progress": hashlib.sha256(progress.encode()).hexdigest(),
    }


def newest_parameters(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields the folder of each policy's checkpoints and its newest parameters."""
    for policy in sorted((folder / "checkpoints").glob("*")):
        files = list(policy.glob("[0-9]*/params.safetensors"))
        if files:
            yield policy.name, max(files, key=lambda file: int(file.parent.name))


def without_real(value: Any) -> Any:
    """Returns the value without every field that holds a real duration, at any depth."""
    if isinstance(value, Mapping):
        return {key: without_real(each) for key, each in value.items() if not key.endswith(REAL)}
    return [without_real(each) for each in value] if isinstance(value, list) else value


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Prints a line per experiment; returns 1 if any differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("configs", type=Path, nargs="*", help="default: all that both have")
    given = parser.parse_args()
    before = given.before.resolve()
    found = sorted((ROOT / "configs").rglob("*.yaml"))
    configs = given.configs or [each for each in found if "\ntune:" not in each.read_text()]
    rows: dict[str, tuple[str, tuple[str, ...]]] = {each.stem: (each.stem, ()) for each in configs}
    rows |= {} if given.configs else WAYS
    differ = 0
    for row, (stem, words) in rows.items():
        known = next((before / "configs").rglob(f"{stem}.yaml"), None)
        if stem in ELSEWHERE or known is None:
            say(f"{row:24} left out")
            continue
        with tempfile.TemporaryDirectory() as folder:
            # Both read the experiment of the other checkout: only the code differs.
            first, second = (
                run(checkout, known, words, Path(folder, name))
                for checkout, name in ((before, "before"), (ROOT, "now"))
            )
        same = [name for name, each in first.items() if second.get(name) == each]
        others = sorted({*first, *second} - {*same})
        differ += bool(others)
        say(f"{row:24} {'DIFFER in ' + ', '.join(others) if others else 'same'} {first['chunks']}")
    return min(1, differ)


if __name__ == "__main__":
    sys.exit(main())
