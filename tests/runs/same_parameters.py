"""Compares what the shipped experiments learn in two checkouts: equal to the last bit, or not.

``python tests/runs/same_parameters.py ../before [CONFIG.yaml ...]`` runs each experiment for some
updates in one thread, with one seed, in both checkouts, and prints the SHA-256 of the parameters
in both final checkpoints. Exit code 1 if any differ. It is for changes that must not change what
is learned.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Updates that take a few seconds each; Atari frames are slower.
UPDATES = 60
FEWER = {"pong_ppo": 3, "breakout_ppo": 3, "pong_impala": 6, "pong_rainbow": 6, "pong_apex": 6}
# Environments of clients, and of packages that are not installed with this one.
ELSEWHERE = (
    *("cartpole_browser", "cartpole_remote"),
    *("fetchreach_sac", "minatar_dqn", "minatar_rainbow", "pointmaze_sac"),
    *("doorkey_ppo", "minigridmemory_ppo"),
)


def digest(checkout: Path, config: Path, folder: Path) -> str:
    """Runs one experiment with the code of a checkout; returns the SHA-256 of its parameters.

    Raises RuntimeError with its output if the run fails.
    """
    stop = (
        f"session_config.stop={{iterations: {FEWER.get(config.stem, UPDATES)}, eval_episodes: 2}}"
    )
    words = ["train", str(config), "--on", "serial", "--quiet", "--seed", "1", "--folder"]
    done = subprocess.run(
        [sys.executable, "-m", "main.cli", *words, str(folder), stop],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    files = [*folder.glob("checkpoints/learner/[0-9]*/params.safetensors")]
    if done.returncode not in (0, 3) or not files:  # 3: ended before its goal
        raise RuntimeError(f"{checkout}: {done.stdout}{done.stderr}")
    newest = max(files, key=lambda file: int(file.parent.name))
    return hashlib.sha256(newest.read_bytes()).hexdigest()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Prints a line per experiment; returns 1 if the parameters of any differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("configs", type=Path, nargs="*", help="default: all that both have")
    given = parser.parse_args()
    before = given.before.resolve()
    found = sorted((ROOT / "configs").rglob("*.yaml"))
    configs = given.configs or [each for each in found if "\ntune:" not in each.read_text()]
    differ = 0
    for config in configs:
        known = next((before / "configs").rglob(config.name), None)
        if config.stem in ELSEWHERE or known is None:
            say(f"{config.stem:20} left out")
            continue
        with tempfile.TemporaryDirectory() as folder:
            # Both read the experiment of the other checkout: only the code differs.
            both = [
                digest(checkout, known, Path(folder, name))
                for checkout, name in ((before, "before"), (ROOT, "now"))
            ]
        same = both[0] == both[1]
        differ += not same
        say(f"{config.stem:20} {'same' if same else 'DIFFER'} {' '.join(both)}")
    return min(1, differ)


if __name__ == "__main__":
    sys.exit(main())
