"""Policies that run without this package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from main.cli import main
from session import nest
from session.errors import MissingExtra, SurrealError, UsageError
from surreal_like import load_policy, train
from surreal_like.algorithm.dqn import DQNAgent
from surreal_like.analysis import export as exporting
from surreal_like.analysis.export import export

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "export.md").read_text()
ABSENT = "import sys\nfor name in ('torch', 'surreal_like', 'session', 'main'):\n"
ABSENT += "    sys.modules[name] = None\n"
SMALL = {
    "session_config.stop": {"env_steps": 300, "eval_episodes": 2},
    "session_config.launcher.snapshot": False,
}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("toy:grid", {"learner_config.replay.min_size": 64}),
    "sac": ("toy:target", {"learner_config.replay.min_size": 64}),
    "ppo": (
        "toy:recall",
        {"learner_config.model.memory": "lstm", "learner_config.model.normalize_obs": True},
    ),
    "r2d2": ("toy:recall", {"learner_config.replay.min_size": 20}),
}


def trained(algorithm: str, folder: Path) -> Path:
    env, settings = RUNS[algorithm]
    run = train(
        algorithm=algorithm,
        env=env,
        overrides={**SMALL, **settings},
        launcher="serial",
        folder=folder,
    )
    assert run.ok
    return folder


@pytest.fixture(scope="module")
def dqn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small run."""
    return trained("dqn", tmp_path_factory.mktemp("export") / "run")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", RUNS)
def test_K3_a_graph_acts_as_its_policy(algorithm: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    run = trained(algorithm, tmp_path / "run")
    found = export(run, tmp_path / "policy.onnx", checkpoint="latest")
    policy = load_policy(run, "latest")
    session = onnxruntime.InferenceSession(str(found.path))
    about = session.get_modelmeta().custom_metadata_map
    assert (about["algorithm"], about["iteration"]) == (algorithm, found.checkpoint)
    state: Any = None
    rng = np.random.default_rng(1)
    feed: dict[str, Any] = {}
    # Three streams, though 256 were traced; then rows behind the first of an episode.
    dtypes = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    for row in range(3):
        obs = {
            each.name: rng.integers(0, 2, (3, *each.shape[1:])).astype(dtypes[each.type])
            for each in session.get_inputs()
            if each.name.startswith("obs")
        }
        actions, state = policy(nest.unflatten(obs, "obs"), state)
        feed |= obs
        if "state" in found.inputs:
            feed.setdefault("state", np.zeros((3, session.get_inputs()[1].shape[1]), np.float32))
            feed["first"] = np.full(3, row == 0)
        ours, *after = session.run(None, feed)
        feed |= dict(zip(("state",), after, strict=False))
        np.testing.assert_allclose(ours, actions, atol=1e-5)
        assert ours.dtype == actions.dtype


@pytest.mark.slow
def test_K3_the_page_runs_without_this_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    run = trained("ppo", tmp_path / "run")
    out = str(tmp_path / "policy.onnx")
    assert main(["export", str(run), "--out", out, "--checkpoint", "latest"]) == 0
    said = capsys.readouterr().out
    assert "inputs obs, state, first; outputs action, next_state" in said
    assert "over 256 random observations" in said
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(program.splitlines()) <= 15
    done = subprocess.run(
        [sys.executable, "-I", "-c", ABSENT + program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, action = done.stdout.splitlines()
    assert first.startswith("ppo toy:recall")
    assert action in ("0", "1", "2", "3")


def test_K3_a_graph_that_differs_is_not_written(
    dqn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = exporting._read_pt2
    out = tmp_path / "policy.pt2"
    assert export(dqn, out, format="pt2", checkpoint="latest").difference == 0
    out.unlink()

    def other(path: Path) -> exporting.Run:
        run = read(path)
        return lambda given: [each + (np.arange(len(each)) == 255) for each in run(given)]

    monkeypatch.setattr(exporting, "_read_pt2", other)
    with pytest.raises(SurrealError, match="differs from load_policy by 1 over 256") as raised:
        export(dqn, out, format="pt2", checkpoint="latest")
    assert raised.value.exit_code == 1
    assert not list(tmp_path.iterdir())


def test_an_agent_that_cannot_be_traced_is_refused(
    dqn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(self: DQNAgent, obs: Any) -> Any:
        values = self.q_network(obs)
        return values.argmax(1).numpy() if float(values.max()) > 0 else values.argmin(1).numpy()

    monkeypatch.setattr(DQNAgent, "act", act)
    with pytest.raises(UsageError, match=r"DQNAgent.act cannot be traced: .*test_export.py, line"):
        export(dqn, tmp_path / "policy.pt2", format="pt2", checkpoint="latest")
    assert not list(tmp_path.iterdir())


def test_without_its_packages_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"surreal-like export .*\[export\]"):
        export(tmp_path, tmp_path / "policy.onnx")


@pytest.mark.parametrize("output", [0, 1])
def test_a_difference_that_is_nan_is_refused(output: int) -> None:
    good = [np.zeros(4, np.float32), np.ones((4, 2), np.float32)]
    written = [each.copy() for each in good]
    written[output][-1] = np.nan
    policy: Any = lambda obs, state, first: tuple(good)  # noqa: E731
    probe = {"obs": good[0], "state": good[1], "first": np.ones(4, np.bool_)}
    assert exporting._compare(policy, lambda given: good, probe) == 0
    with pytest.raises(SurrealError, match="differs from load_policy by nan over 4 random"):
        exporting._compare(policy, lambda given: written, probe)
