"""Every environment in the table of docs/environments.md runs, if its package is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from session import nest
from session.config import Config
from session.config.defaults import BASE_ENV_CONFIG
from surreal_like import check_env
from surreal_like.env.kinds import extra_of
from surreal_like.env.registry import make_env
from tests.docs.examples import ROOT

ROW = re.compile(r"\| ([^|]*) \| [^|]*\| `(gym:[^`]*)` \| ([^|]*)\|")
TEXT = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
ROWS = [
    (name, " ".join(re.findall(r"obs_keys: \[([\w, ]+)\]", rest)))
    for _, name, rest in ROW.findall(TEXT)
]
JOINT = re.findall(r"\| `((?:pettingzoo|mpe2):[^`]*)` \|", TEXT)
# Package of rows that name none.
PACKAGES = {
    "gym:HalfCheetah-v5": "mujoco",
    "gym:LunarLander-v3": "Box2D",
    "gym:ALE/Pong-v5": "ale_py",
}


def test_the_tables_are_read() -> None:
    assert len(ROWS) == 15
    assert len(JOINT) == 4
    assert ("gym:minigrid:MiniGrid-Empty-5x5-v0", "image, direction") in ROWS


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parts"), ROWS)
def test_each_environment_that_is_installed_runs(
    name: str, parts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # MuJoCo 4.0 leaves a log there
    package = PACKAGES.get(
        name, name.split(":")[1].split(".")[0] if name.count(":") > 1 else "numpy"
    )
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    config = Config({"env_name": name, "obs_keys": parts.replace(",", " ").split()}).extend(
        BASE_ENV_CONFIG
    )
    # Packages of others warn at their import, and at steps.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.closing(make_env(config)) as env:
            env.seed(1)
            obs, _ = env.reset()
            spec, rng = env.action_spec, np.random.default_rng(1)
            for _ in range(30):
                if spec["type"] == "continuous":
                    action = rng.uniform(-1, 1, spec["dim"]).astype(np.float32)
                else:
                    action = rng.integers(spec["dim"][0])
                obs, reward, terminated, truncated, _ = env.step(action)
                assert np.isfinite(reward)
                if terminated or truncated:
                    obs, _ = env.reset()
            assert all(np.isfinite(part).all() for part in nest.flatten(obs, "obs").values())
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"MUJOCO_LOG.TXT"}


@pytest.mark.slow
@pytest.mark.parametrize("name", JOINT)
def test_each_environment_of_several_agents_that_is_installed_runs(name: str) -> None:
    package = name.partition(":")[0]
    if importlib.util.find_spec(package) is None or extra_of(name):
        pytest.skip(f"{package}, or what {name} needs, is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = check_env(name, steps=20)
    assert report.ok, report
