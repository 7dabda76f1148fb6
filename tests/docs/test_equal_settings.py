"""Comparisons with stable-baselines3: each setting is passed on, or refused."""

from __future__ import annotations

import importlib
import json
from functools import cache
from typing import Any

import pytest

from session.config import Config
from session.config.config import keys_of
from session.config.defaults import BASE_CONFIG
from session.config.key import is_idle
from surreal_like.experiment.resolve import defaults
from surreal_like.run.request import RunRequest
from tests.docs.results import result

pytestmark = pytest.mark.usefixtures("quick")

# docs/generate.py, which tests.docs.results imports, has put the folder of benchmarks on the path.
LEARN = importlib.import_module("learn")
PEER = importlib.import_module("peer_settings")
SAMPLES = importlib.import_module("samples")
MILESTONES = importlib.import_module("milestones")
TABLES = importlib.import_module("tables")
GAMES = importlib.import_module("minatar_table")
# Settings that the peer needs not -> why.
WITHOUT_EFFECT = {
    "algo.synchronous": "how our own processes work together",
    "algo.eval_epsilon": "of evaluations that are not greedy",
    "algo.epsilon_agents": "all agents have the same epsilon",
    "algo.kl.target": "without a penalty",
    **dict.fromkeys(
        (f"algo.entropy_target.{key}" for key in ("learning_rate", "low", "high")), "without one"
    ),
    **dict.fromkeys(
        (f"algo.adaptive_learning_rate.{key}" for key in ("low", "high")), "it does not adapt"
    ),
    "model.convolutions": "of images",
    "model.image_features": "of images",
    "model.memory_size": "without a memory",
    "model.memory_inputs": "without a memory",
    "replay.max_bytes": "the capacity is smaller",
    "replay.replay_shards": "how our own processes work together",
    "replay.when_full": "how our own processes work together",
}
# Of replay those of what is sampled.
OF_REPLAY = ("type", "batch_size", "capacity", "min_size", "samples_per_insert", "max_bytes", "age")


@cache
def request_of(config: str, overrides: tuple[str, ...]) -> Config:
    found: Config = LEARN.resolved(config, overrides)
    return found


def resolved(row: Any) -> Config:
    """Return the config of a row, for a test to change; its environment is looked at once."""
    return request_of(row.config, row.overrides).copy()


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 2 + 1
    if isinstance(value, list):
        return [*value, 7]
    return "other" if value != "other" else ""


def settings_in_use(row: Any) -> list[str]:
    """Return the settings of what is learned that have an effect, without `learner_config.`."""
    request = RunRequest(LEARN.config_file(row.config), overrides=row.overrides)
    found = request.explain()
    values = {path: value for path, (value, _) in found.items()}
    keys = keys_of(defaults(values["algorithm"]).extend(BASE_CONFIG, abstract=True))
    names = [
        path.removeprefix("learner_config.")
        for path, value in values.items()
        if path.startswith("learner_config.") and not is_idle(path, keys, values)
        if not isinstance(value, dict | Config)
    ]
    on_policy = "algo.gae_lambda" in names
    return [
        name
        for name in names
        if name.startswith(("algo.", "model."))
        or (name.startswith("replay.") and name.split(".")[1] in OF_REPLAY and not on_policy)
    ]


@pytest.mark.parametrize("row", SAMPLES.ROWS, ids=lambda row: row.name)
def test_each_setting_is_passed_on_or_refused(row: Any) -> None:
    base = resolved(row)
    expected = PEER.stable_baselines3(base)
    forgotten = []
    for path in settings_in_use(row):
        changed = base.copy()
        section = changed.learner_config
        *way, key = path.split(".")
        for word in way:
            section = section[word]
        section[key] = other(section[key])
        try:
            found = PEER.stable_baselines3(changed)
        except SystemExit:
            continue
        if found == expected:
            forgotten.append(path)
    assert [path for path in forgotten if path not in WITHOUT_EFFECT] == []


def test_a_setting_that_the_peer_has_not_is_refused_or_named() -> None:
    config = request_of("cartpole_dqn", ()).copy()
    with pytest.raises(SystemExit, match=r"has no learner_config.algo.double: it is True"):
        PEER.stable_baselines3(config)
    assert PEER.stable_baselines3(config, ["algo.double"])["algorithm"] == "dqn"
    for key in ("action_repeat", "frame_stack"):
        stacked = config.copy()
        stacked.env_config[key] = 4
        with pytest.raises(SystemExit, match=f"has no env_config.{key}: it is 4"):
            PEER.stable_baselines3(stacked, ["algo.double"])
    config.algorithm = "r2d2"
    with pytest.raises(SystemExit, match="has no r2d2; it has dqn, ppo, sac, td3"):
        PEER.stable_baselines3(config)


def test_the_peer_learns_as_often_from_each_step() -> None:
    given = {row.name: PEER.stable_baselines3(resolved(row)) for row in SAMPLES.ROWS}
    assert PEER.uses(given["ppo"]) == "6 passes over 1,024 steps"
    # 16 environments, an update of 128 rows for four steps, a target every 50 updates.
    assert PEER.uses(given["dqn"]) == "32 samples per step"
    dqn = given["dqn"]["arguments"]
    assert (dqn["train_freq"], dqn["gradient_steps"]) == (1, 4)
    assert dqn["target_update_interval"] == 200
    assert dqn["exploration_fraction"] * given["dqn"]["steps"] == 5000
    # Ours has the factor 1/2 in the loss of the value.
    assert given["ppo"]["arguments"]["vf_coef"] == 0.25
    config = resolved(SAMPLES.ROWS[0])
    config.learner_config.replay.samples_per_insert = 3.0
    with pytest.raises(SystemExit, match=r"42\.6667 steps for each update do not fit 16"):
        PEER.stable_baselines3(config)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=pytest.mark.slow if number else ())
        for number, row in enumerate(MILESTONES.peers_of(MILESTONES.ROWS))
    ],
)
def test_each_row_with_a_peer_has_equal_settings(row: Any) -> None:
    if "minatar" in row.config:
        pytest.importorskip("minatar")
    given = json.loads(json.dumps(MILESTONES.peer_experiment(row)))
    assert given["goal"] is None
    assert given["episodes"] == 100


def test_a_peer_normalizes_what_ours_does() -> None:
    [config] = [resolved(row) for row in SAMPLES.ROWS if row.name == "ppo"]
    none = {"obs": False, "reward": False, "clip_reward": None}
    assert PEER.stable_baselines3(config)["normalize"] == none
    config.learner_config.model.normalize_obs = True
    config.learner_config.algo.normalize_rewards = True
    config.learner_config.algo.normalized_reward_clip = 10.0
    both = {"obs": True, "reward": True, "clip_reward": 10.0}
    assert PEER.stable_baselines3(config)["normalize"] == both
    other_kind = request_of("pendulum_sac", ()).copy()
    other_kind.learner_config.model.normalize_obs = True
    with pytest.raises(SystemExit, match=r"has no learner_config\.model\.normalize_obs"):
        PEER.stable_baselines3(other_kind)


def test_kept_comparisons_are_of_the_settings_of_now() -> None:
    for row in result("samples")["samples"]:
        [now] = [each for each in SAMPLES.ROWS if each.name == row["name"]]
        assert row["overrides"] == list(now.overrides)
        assert row["uses"] == PEER.uses(PEER.stable_baselines3(resolved(now)))


def test_a_judge_starts_both_sides_from_the_same_states() -> None:
    judge = importlib.import_module("judge")
    assert judge.start_seeds(101, 3) == [102_000_000, 102_000_001, 102_000_002]
    seen: list[Any] = []

    def act(obs: Any) -> Any:
        seen.append(obs.copy())
        return obs[:, 2] > 0

    once = judge.judged(lambda obs: act(obs).astype(int), "CartPole-v1", [1, 2, 3], 20)
    again = judge.judged(lambda obs: act(obs).astype(int), "CartPole-v1", [1, 2, 3], 20)
    assert once == again <= 20
    starts = [obs for obs in seen if len(obs) == 3]
    assert (starts[0] == starts[len(starts) // 2]).all()


def test_no_two_evaluations_of_a_peer_begin_with_equal_states() -> None:
    criterion, judge = importlib.import_module("criterion"), importlib.import_module("judge")
    found: set[int] = set(judge.start_seeds(101, criterion.EPISODES))
    looks = criterion.Criterion(101, 0.0)
    for _ in range(50):
        # Copies of an environment get the seed and those behind it.
        first = next(looks._seeds)
        seeds = set(range(first, first + criterion.EPISODES))
        assert not seeds & found
        found |= seeds


def test_of_five_seeds_there_is_an_interval_and_of_fewer_all_scores() -> None:
    def row(name: str, *scores: float) -> dict[str, Any]:
        return {"name": name, "runs": [{"judged_mean_return": each} for each in scores]}

    few = [row("x_sac", 90, 110, 100), row("x_sac, p", 50, 40, 60)]
    assert "|`x_sac`|100 (90, 100, 110)|50 (40, 50, 60)|2.00|" in TABLES.beside_peer(few, "p")
    many = [row("x_sac", 8, 9, 10, 11, 12), row("x_sac, p", 8, 9, 10, 11, 12)]
    line = TABLES.beside_peer(many, "p").splitlines()[-1]
    # The standard error is 0.7071: of a side with t of four degrees of freedom, 2.776, of the ratio
    # of both with that of eight, 2.306.
    assert line == "|`x_sac`|10 ± 2 (8 to 12)|10 ± 2 (8 to 12)|1.00 (0.79 to 1.26)|"
    # One side has nearly no spread, so the other's four degrees of freedom are left.
    many[1] = row("x_sac, p", 9.99, 9.99, 10, 10.01, 10.01)
    assert TABLES.beside_peer(many, "p").endswith("|1.00 (0.82 to 1.22)|")
    assert TABLES.beside_peer(few[:1], "p") == ""


def test_all_games_together_are_an_interquartile_mean() -> None:
    games = GAMES.GAMES
    kept = [
        {"row": f"minatar_ppo {game}", "last_mean_return": 10.0 * (1 + seed)}
        for game in games
        for seed in range(3)
    ]
    kept += [{"row": "minatar_dqn Breakout", "judged_mean_return": 40.0}]
    kept += [{"row": "minatar_dqn Breakout, stable-baselines3", "judged_mean_return": 20.0}]
    dqn, peer, ppo = GAMES.table(kept).splitlines()[2:]
    assert dqn == "|`minatar_dqn`||40.0|||||"
    assert peer == "|`minatar_dqn, stable-baselines3`||20.0|||||"
    # Scores of four games are 0.5, 1, 1.5, of Breakout 0.25, 0.5, 0.75; of the 15 three are cut at
    # each end: (3 * 0.5 + 0.75 + 4 * 1 + 1.5) / 9.
    assert ppo.startswith("|`minatar_ppo`|20.0 (10.0 to 30.0)|20.0 (10.0 to 30.0)|")
    assert "|0.86 (" in ppo
    single = [{"row": f"minatar_ppo {game}", "last_mean_return": 10.0} for game in games]
    assert GAMES.table(single).splitlines()[-1].endswith("|10.0|1.00|")
    assert GAMES.table([]) == ""
