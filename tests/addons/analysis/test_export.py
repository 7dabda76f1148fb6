"""Policies that run without this package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from main.cli import main
from session import nest
from session.errors import MissingExtra, SurrealError, UsageError
from surreal_like import load_policy, make_policy, train
from surreal_like.addons.analysis import export as exporting
from surreal_like.addons.analysis.export import export, write_policy
from surreal_like.addons.scripts.policy import Policy
from surreal_like.algorithm.catalog import list_algorithms
from surreal_like.algorithm.dqn import DQNAgent
from surreal_like.network.encoder import FlatEncoder
from tests.add_ons import needs
from tests.surreal_like.env.gym_samples import ACTED, OBSERVED

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "using_results.md").read_text().partition("\n## Export a policy")[2]
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

C51 = "learner_config.algo.distribution={kind: categorical, atoms: 7, v_min: -2.0, v_max: 3.0}"
QUANTILE = "learner_config.algo.distribution={kind: quantile, quantiles: 5}"
DUELING = "learner_config.algo.dueling=true"
NOISY = "learner_config.model.noisy=0.3"
LAYERS = "learner_config.model.head_sizes=[8]"
NORMAL = "learner_config.model.normalize_obs=true"
SCALED = "learner_config.model.normalize_values=true"
LSTM, GRU = ("learner_config.model.memory=lstm", "learner_config.model.memory=gru")
BEFORE = "learner_config.model.memory_inputs=[action, reward]"
CLIPPED = "learner_config.algo.reward_clip=0.5"
BETA, SQUASHED = (
    "learner_config.model.policy=beta",
    "learner_config.model.policy=squashed_gaussian",
)
SMALL_IMAGES = (
    "learner_config.model.convolutions=[[4, 8, 4]]",
    "learner_config.model.image_features=8",
)
# Name -> algorithm, action space, settings: every head that acts.
HEADS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "dqn": ("dqn", "discrete", ()),
    "dqn normalized, with layers": ("dqn", "discrete", (NORMAL, LAYERS)),
    "dqn dueling": ("dqn", "discrete", (DUELING,)),
    "dqn noisy": ("dqn", "discrete", (NOISY,)),
    "dqn categorical": ("dqn", "discrete", (C51,)),
    "dqn dueling categorical": ("dqn", "discrete", (C51, DUELING, LAYERS)),
    "dqn dueling quantile": ("dqn", "discrete", (QUANTILE, DUELING)),
    "rainbow": ("dqn", "discrete", (C51, DUELING, NOISY)),
    "dqn noisy quantile": ("dqn", "discrete", (QUANTILE, NOISY)),
    "r2d2 lstm": ("r2d2", "discrete", (NORMAL,)),
    "r2d2 gru dueling": ("r2d2", "discrete", (GRU, DUELING)),
    "r2d2 with action and reward": ("r2d2", "discrete", (BEFORE,)),
    "pqn": ("pqn", "discrete", (NORMAL,)),
    "pqn gru dueling": ("pqn", "discrete", (GRU, DUELING)),
    "ppo": ("ppo", "discrete", ()),
    "ppo several choices": ("ppo", "multi_discrete", (SCALED,)),
    "ppo binary": ("ppo", "multi_binary", (NORMAL,)),
    "ppo lstm": ("ppo", "discrete", (LSTM, NORMAL)),
    "ppo gru several choices": ("ppo", "multi_discrete", (GRU,)),
    "ppo lstm with action and reward": ("ppo", "multi_discrete", (LSTM, BEFORE, CLIPPED)),
    "ppo gaussian": ("ppo", "box_free", ()),
    "ppo gaussian of a state": ("ppo", "box_grid", ("learner_config.model.variance=state",)),
    "ppo beta": ("ppo", "box_grid", (BETA,)),
    "ppo squashed lstm": ("ppo", "box", (SQUASHED, LSTM)),
    "a3c": ("a3c", "discrete", ()),
    "a3c gru": ("a3c", "multi_discrete", (GRU,)),
    "a3c gaussian": ("a3c", "box", ()),
    "impala": ("impala", "discrete", ()),
    "impala lstm": ("impala", "multi_discrete", (LSTM, SCALED)),
    "impala gru with action and reward": ("impala", "box_grid", (GRU, BEFORE)),
    "sac": ("sac", "box", (NORMAL,)),
    "sac grid": ("sac", "box_grid", ()),
    "td3": ("td3", "box_grid", ()),
    "ddpg": ("ddpg", "box", (NORMAL,)),
    "bc several choices": ("bc", "multi_discrete", ()),
    "bc gaussian": ("bc", "box_grid", (NORMAL,)),
    "iql": ("iql", "box", (NORMAL,)),
}
# Without those of add-ons that are not here.
HEADS = {name: each for name, each in HEADS.items() if each[0] in list_algorithms()}
RUNS = {name: each for name, each in RUNS.items() if name in list_algorithms()}
# Head -> observation space: each kind of either once, for the quick test.
FEW = {
    "dqn dueling quantile": "multi_discrete_grid",
    "ppo beta": "grid",
    "ppo lstm with action and reward": "discrete",
    "impala lstm": "multi_binary_grid",
    "td3": "image_frames",
}


def spaced(head: str, observed: str) -> Policy:
    """Return a new policy with this head over this observation space."""
    algorithm, acted, settings = HEADS[head]
    places = f"env_config.env_args={{observed: {observed}, acted: {acted}}}"
    env = "tests.surreal_like.env.gym_samples:Spaced"
    return make_policy(algorithm, env=env, overrides=[places, *SMALL_IMAGES, *settings])


def check_written(policy: Policy, form: str, folder: Path) -> None:
    """Write the policy, which compares 256 rows and one, and compare three rows."""
    path = folder / f"policy.{form}"
    assert write_policy(policy, path, format=form, metadata={}).difference <= 1e-5
    run = {"onnx": exporting._read_onnx, "pt2": exporting._read_pt2}[form](path)
    three = {name: each[-3:] for name, each in exporting._probe(policy).items()}
    assert exporting._difference(policy, run, three) <= 1e-5


@pytest.mark.parametrize("clips", [pytest.param(True, marks=pytest.mark.slow), False])
def test_actions_of_a_gaussian_are_within_their_bounds(tmp_path: Path, clips: bool) -> None:
    words = [
        "learner_config.model.hidden_sizes=[8]",
        f"env_config.clip_action={str(clips).lower()}",
    ]
    policy = make_policy("ppo", env="gym:Pendulum-v1", overrides=words)
    policy.set_weights({name: 1000 * each for name, each in policy.get_weights().items()})
    path = tmp_path / "policy.pt2"
    write_policy(policy, path, format="pt2", metadata={})
    obs = torch.randn(64, 3, generator=torch.Generator().manual_seed(1))
    actions = torch.export.load(path).module()(obs)
    assert bool(actions.abs().max() <= 2) is clips


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
def test_a_graph_acts_as_its_policy(algorithm: str, tmp_path: Path) -> None:
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
def test_the_page_runs_without_this_package(
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


@pytest.mark.parametrize(("head", "observed"), FEW.items(), ids=FEW)
def test_a_head_over_a_space_is_written(head: str, observed: str, tmp_path: Path) -> None:
    check_written(spaced(head, observed), "pt2", tmp_path)


def space_of(head: str, offset: int) -> str:
    """Return a space for each head, by turns: an encoder does not know what is behind it."""
    return [*OBSERVED][([*HEADS].index(head) + offset) % len(OBSERVED)]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("head", HEADS)
def test_every_head_is_written_for_torch_and_every_space(head: str, tmp_path: Path) -> None:
    check_written(spaced(head, space_of(head, 0)), "pt2", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_every_head_and_every_space_is_written_as_onnx(head: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    check_written(spaced(head, space_of(head, 1)), "onnx", tmp_path)


@needs("gradients")
def test_the_tables_have_every_algorithm_and_every_kind_of_space() -> None:
    assert {algorithm for algorithm, *_ in HEADS.values()} == set(list_algorithms())
    kinds = {type(part).__name__ for space in OBSERVED.values() for part in parts_of(space)}
    assert kinds == {"Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple"}
    assert {acted for _, acted, _ in HEADS.values()} == set(ACTED)


def parts_of(space: Any) -> list[Any]:
    """Return a space and all spaces inside it."""
    inner: Any = ()
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
    return [space, *(part for each in inner for part in parts_of(each))]


def test_a_graph_that_differs_is_not_written(
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
    with pytest.raises(
        UsageError,
        match=r"DQNAgent.act cannot be traced: .*test_export.py, line \d+\); compute actions with",
    ):
        export(dqn, tmp_path / "policy.pt2", format="pt2", checkpoint="latest")
    assert not list(tmp_path.iterdir())


class Counting(nn.Module):
    """A user's torso that makes the size of the batch constant."""

    def __init__(self, obs_spec: Any) -> None:
        super().__init__()
        self.out_features = 4

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return obs.reshape(len(obs), -1)


TORSO = "learner_config.model.torso=tests.addons.analysis.test_export:Counting"


def test_a_users_network_is_named_where_it_makes_the_batch_constant(tmp_path: Path) -> None:
    policy = make_policy("dqn", env="tests.surreal_like.env.gym_samples:Spaced", overrides=[TORSO])
    with pytest.raises(UsageError, match=r"compute actions in Counting with .*len\(\) of a batch"):
        write_policy(policy, tmp_path / "policy.pt2", format="pt2", metadata={})


def test_a_fault_of_the_package_is_not_blamed_on_a_user(
    dqn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def constant(self: FlatEncoder, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(len(x), -1).float()

    monkeypatch.setattr(FlatEncoder, "forward", constant)
    with pytest.raises(UsageError, match="a fault of surreal_like: report it") as raised:
        export(dqn, tmp_path / "policy.pt2", format="pt2", checkpoint="latest")
    assert "compute actions" not in str(raised.value)


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
    policy: Any = lambda obs, state, first, reward: tuple(good)  # noqa: E731
    probe = {"obs": good[0], "state": good[1], "first": np.ones(4, np.bool_)}
    assert exporting._compare(policy, lambda given: good, probe) == 0
    with pytest.raises(SurrealError, match="differs from load_policy by nan over 4 random"):
        exporting._compare(policy, lambda given: written, probe)
