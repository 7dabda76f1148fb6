"""Draws the learning curves of the documents: of kept runs, and of curves in kept results.

    make learn ARGS="--keep runs/learn"
    python docs/images/curves.py runs/learn
    python docs/images/curves.py

With a folder those are drawn whose runs are in it: each is what `surreal-like plot
runs/learn/NAME/*` draws, saved with few colours, which is smaller. Without one those whose curves
benchmarks/results/milestones.json has, each beside its peer; those of a game of MinAtar together.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "images"
# As a script, this file has only its own folder on the path.
sys.path += [path for path in (str(ROOT), str(ROOT / "benchmarks")) if path not in sys.path]

from milestones import ROWS, peers_of, write_curve  # noqa: E402

from surreal_like.addons.analysis.plot import plot  # noqa: E402
from surreal_like.addons.analysis.run_groups import group, run_folders  # noqa: E402

# One for each algorithm, and what takes minutes; in the order of results.md and goals.md.
NAMES = (
    "doorkey_ppo",
    "bipedalwalker_ppo",
    "halfcheetah_sac",
    "hopper_sac",
    "walker2d_sac",
    "halfcheetah_td3",
    "halfcheetah_ppo",
    "hopper_ppo",
    "walker2d_ppo",
    "minatar_asterix",
    "minatar_breakout",
    "minatar_freeway",
    "minatar_seaquest",
    "minatar_spaceinvaders",
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
# Runs of each experiment from which on the band is the interval of the mean.
ENOUGH = 5
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
    return _draw([seed for each in folders for seed in sorted(each.iterdir())], folder, name)


def draw_kept(folder: Path = FOLDER) -> list[Path]:
    """Draws all curves of milestones.json; returns the files."""
    kept = json.loads((ROOT / "benchmarks" / "results" / "milestones.json").read_text())
    rows = {row.name: row for row in (*ROWS, *peers_of(ROWS))}
    pictures: dict[str, list[tuple[str, dict[str, object]]]] = {}
    for run in kept["milestones"]:
        name = run["row"].partition(",")[0]
        config, _, game = name.partition(" ")
        # What learns from recorded data has no environment steps, and one point.
        if len(run.get("curve", ())) > 1:
            picture = f"minatar_{game}".lower() if game else config
            pictures.setdefault(picture, []).append((run["row"], run))
    found = []
    for picture, runs in pictures.items():
        with tempfile.TemporaryDirectory() as scratch:
            places = []
            for name, run in sorted(runs, key=lambda each: each[0]):
                # By the folder, the legend has the name of the row.
                places.append(Path(scratch) / name / f"seed-{run['seed']}")
                write_curve(places[-1], rows[name], run)
            found.append(_draw(places, folder, picture, "eval.mean_return"))
    return found


def _draw(runs: Sequence[Path], folder: Path, name: str, metric: str | None = None) -> Path:
    experiments = group(run_folders(runs))
    band = "interval" if min(len(each.runs) for each in experiments) >= ENOUGH else "range"
    path = plot(runs, metric=metric, out=folder / f"{name}.png", band=band)
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(COLOURS)
    few.save(path, optimize=True)
    return path


if __name__ == "__main__":
    if sys.argv[1:]:
        kept_runs = Path(sys.argv[1])
        for each in NAMES:
            if (kept_runs / each).is_dir():
                draw(kept_runs, each)
    else:
        draw_kept()
