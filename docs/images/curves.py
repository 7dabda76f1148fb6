"""Draws the learning curves of the documents from the runs that `make learn` has kept.

    make learn ARGS="--keep runs/learn"
    python docs/images/curves.py runs/learn
    python docs/images/curves.py runs/milestones

Those are drawn whose runs are in the folder. Each is what `surreal-like plot runs/learn/NAME/*`
draws, saved with few colours, which is smaller.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "images"
# As a script, this file has only its own folder on the path.
sys.path += [path for path in (str(ROOT),) if path not in sys.path]

from surreal_like.addons.analysis.plot import plot  # noqa: E402

# One for each algorithm, and what takes minutes; in the order of results.md and goals.md.
NAMES = (
    "doorkey_ppo",
    "bipedalwalker_ppo",
    "halfcheetah_sac",
    "pong_ppo",
    "cartpole_rainbow",
    "cartpole_qrdqn",
    "cartpole_apex",
    "cartpole_dqn",
    "memory_r2d2",
    "cartpole_ppo",
    "lunarlander_ppo",
    "cartpole_impala",
    "pendulum_sac",
    "pendulum_td3",
    "pendulum_ddpg",
    "chain_rnd",
    "bitflip_dqn",
    "fetchreach_sac",
)
# Those beside a peer: with the interval of the mean, which `compare` prints.
INTERVALS = ("halfcheetah_sac",)
COLOURS = 64


def draw(runs: Path, name: str, folder: Path = FOLDER) -> Path:
    """Draws one experiment, beside its controls or its peer; returns the file.

    Args:
        runs: has a folder for each experiment, in which there is a run folder for each seed. That
            of a control or a peer has the name of the experiment, a hyphen, and what the control
            lacks or the peer is called.
        name: of the experiment.
        folder: for the picture.
    """
    folders = [runs / name, *sorted(runs.glob(f"{name}-*"))]
    seeds = [seed for each in folders for seed in sorted(each.iterdir())]
    band = "interval" if name in INTERVALS else "range"
    path = plot(seeds, out=folder / f"{name}.png", band=band)
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(COLOURS)
    few.save(path, optimize=True)
    return path


if __name__ == "__main__":
    kept = Path(sys.argv[1])
    for each in NAMES:
        if (kept / each).is_dir():
            draw(kept, each)
