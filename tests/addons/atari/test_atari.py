"""Atari games: both preprocessings give the same, and a lost life is no end of a game."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError, MissingExtra
from surreal_like.addons.atari.atari import AtariEnv, AtariSettings, atari_settings
from surreal_like.addons.atari.emulator import draw_below, list_games, mersenne_words
from surreal_like.addons.atari.vector import AtariVector
from surreal_like.agent.evaluation import Evaluation
from surreal_like.data.episodes import EpisodeCounter, EpisodeSummary
from surreal_like.env.environment import Env, VectorEnv
from surreal_like.env.frame_stack import stack_frames
from surreal_like.env.kinds import list_environments
from surreal_like.env.registry import derive_specs, make_env
from surreal_like.env.vector import SyncVector, make_vector_env
from surreal_like.env.whole_vector import WholeVector
from surreal_like.errors import SpecError
from tests.contracts.env import EnvContract, VectorEnvContract

pytest.importorskip("ale_py")

SEEDS = [3, 12345, 7, 2**31 - 1]


class TestBreakout(EnvContract):
    def make(self) -> Env:
        return make_env({"env_name": "atari:Breakout"})


@pytest.mark.slow
class TestVectorBreakout(VectorEnvContract):
    steps = 150

    def make(self, num_envs: int, seed: int) -> VectorEnv:
        env = make_vector_env({"env_name": "atari:Breakout"}, num_envs=num_envs, seed=seed)
        assert isinstance(env, AtariVector)
        return env


class Game:
    """What a run of random actions gave, and what was counted."""

    def __init__(self, env: VectorEnv) -> None:
        self.env = env
        self.counter = EpisodeCounter(env.num_envs)
        self.first = np.zeros(env.num_envs, np.bool_)
        self.finished: list[EpisodeSummary] = []
        self.lives_lost = self.ends = 0
        self.obs = env.reset()[0]

    def step(self, actions: Any) -> tuple[Any, ...]:
        self.obs, reward, terminated, truncated, info = self.env.step(actions)
        last = terminated | truncated
        raw, lost = info.get("raw_reward", reward), info.get("life_lost")
        self.finished += self.counter.update(raw, last, None, lost)
        self.ends += int(last.sum())
        life_lost = info.get("life_lost", np.zeros_like(last))
        self.lives_lost += int(life_lost.sum())
        self.first = last
        return self.obs, reward, terminated, truncated, life_lost, info["lives"]


@pytest.mark.parametrize(
    ("game", "options", "steps", "ends"),
    [
        pytest.param("Pong", {}, 60, 0, marks=pytest.mark.slow),
        pytest.param("Breakout", {}, 200, 8, marks=pytest.mark.slow),
        pytest.param(
            "Breakout",
            {"episodic_life": False, "grayscale": False, "frameskip": 2},
            100,
            0,
            marks=pytest.mark.slow,
        ),
        (
            "SpaceInvaders",
            {
                "max_num_frames_per_episode": 150,
                "use_fire_reset": False,
                "maxpool": False,
                "img_height": 100,
                "img_width": 90,
                "full_action_space": True,
                "noop_max": 0,
                "repeat_action_probability": 0.25,
            },
            100,
            4,
        ),
    ],
)
def test_both_preprocessings_give_the_same(
    game: str, options: dict[str, Any], steps: int, ends: int
) -> None:
    settings = AtariSettings(**options)
    envs = [AtariEnv(game, settings) for _ in SEEDS]
    for env, seed in zip(envs, SEEDS, strict=True):
        env.seed(seed)
    specs: dict[str, Any] = {"obs_spec": envs[0].obs_spec, "action_spec": envs[0].action_spec}
    sync = SyncVector(envs, **specs, info_keys=("lives",))
    vector = AtariVector(game, settings, seeds=SEEDS, info_keys=("lives",))
    with contextlib.closing(sync), contextlib.closing(vector):
        assert (vector.obs_spec, vector.action_spec) == (sync.obs_spec, sync.action_spec)
        mine, theirs = Game(sync), Game(vector)
        np.testing.assert_array_equal(mine.obs, theirs.obs)
        assert mine.obs.any()
        rng = np.random.default_rng(0)
        for _ in range(steps):
            actions = rng.integers(0, specs["action_spec"]["dim"][0], len(SEEDS))
            for one, other in zip(mine.step(actions), theirs.step(actions), strict=True):
                np.testing.assert_array_equal(one, other)
    assert mine.finished == theirs.finished
    assert mine.ends >= ends
    assert (mine.lives_lost > 0) == (settings.episodic_life and game == "Breakout")


def test_the_return_of_a_game_is_that_of_all_its_lives() -> None:
    """The same actions with and without episodes of lives; a lost life takes no action of its own.

    The step that leads on from a lost life has no action: the other game is given the same.
    """
    lives, whole = AtariEnv("Breakout"), AtariEnv("Breakout", AtariSettings(episodic_life=False))
    total, frames, rng = 0.0, 0, np.random.default_rng(1)
    games: list[Game] = []
    for env in (lives, whole):
        env.seed(11)
        specs: dict[str, Any] = {"obs_spec": env.obs_spec, "action_spec": env.action_spec}
        games.append(Game(SyncVector([env], **specs, info_keys=("lives",))))
    by_lives, by_games = games
    while not by_games.finished:
        action = np.zeros(1, np.int64) if by_lives.first.any() else rng.integers(0, 4, 1)
        reward = by_games.step(action)[1]
        total, frames = total + float(reward[0]), frames + 1
        by_lives.step(action)
        np.testing.assert_array_equal(by_lives.obs, by_games.obs)
    assert by_games.ends == 1
    assert (by_lives.ends, by_lives.lives_lost) == (5, 4)
    [game] = by_lives.finished
    assert game["return"] == by_games.finished[0]["return"] == total > 0
    # The first rows of the later lives are no steps of an agent.
    assert (game["length"], by_games.finished[0]["length"]) == (frames - 4, frames)


def test_in_evaluation_a_lost_life_ends_nothing() -> None:
    config = {"env_name": "atari:Breakout", "env_args": {"noop_max": 0}}
    assert atari_settings(config) == AtariSettings(noop_max=0)
    assert atari_settings(config, True) == AtariSettings(noop_max=0, episodic_life=False)
    assert atari_settings({**config, "eval_mode": {"episodic_life": True}}, True).episodic_life
    env = make_vector_env(config, num_envs=2, seed=0, evaluation=True)
    with contextlib.closing(env):
        played, lost = Evaluation(2, 2), []
        own = env.step

        def look(actions: Any) -> Any:
            step = own(actions)
            lost.append("life_lost" in step[-1])
            return step

        env.step = look  # type: ignore[method-assign]
        vector = WholeVector(env)
        vector.reset()
        while not played.over:
            played.count(vector.step({"default": np.ones(2, np.int64)}).episodes, 0)
        assert not any(lost)
    assert played.summary()["episodes"] == 2


class Dying(AtariEnv):
    """Loses the next life, or the game, with the step that leads on from a lost life."""

    ends: Any = (True, False)

    def _play(self, action: int) -> Any:
        frame, reward, *_ = super()._play(action)
        terminated, truncated = self.ends
        self._life_lost = terminated
        return frame, reward, terminated, truncated, {}


@pytest.mark.parametrize("ends", [(True, False), (False, True)])
def test_an_episode_does_not_end_with_its_first_row(ends: tuple[bool, bool]) -> None:
    env = Dying("Breakout")
    env.seed(0)
    env.reset()
    env.ends = (True, False)
    assert env.step(0)[2]
    env.ends = ends
    frame, info = env.reset()
    assert "raw_reward" in info
    last, reward, *flags, _ = env.step(1)
    assert (reward, tuple(flags)) == (0.0, ends)
    np.testing.assert_array_equal(frame, last)


class Scripted:
    """Stands for ale-py's code: gives rewards, ends and lives of one game as they are written."""

    def __init__(self, *rows: tuple[int, bool, bool, int]) -> None:
        self.rows = list(rows)

    def reset(self, seed: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros((1, 1, 84, 84), np.uint8), {"lives": np.array([3])}

    def step(self, actions: Any) -> tuple[Any, ...]:
        reward, terminated, truncated, lives = self.rows.pop(0)
        flags = np.array([terminated]), np.array([truncated])
        frame = np.zeros((1, 1, 84, 84), np.uint8)
        return frame, np.array([reward]), *flags, {"lives": np.array([lives])}


def play(*rows: tuple[int, bool, bool, int]) -> list[tuple[float, bool, bool, bool, float]]:
    """Of each row: reward, terminated, truncated, life lost, raw reward."""
    vector = AtariVector("Breakout", AtariSettings(), seeds=[0])
    vector._games = Scripted(*rows)
    vector.reset()
    found = []
    for _ in rows:
        _, reward, terminated, truncated, info = vector.step(np.zeros(1, np.int64))
        lost = bool(info.get("life_lost", [False])[0])
        raw = float(info.get("raw_reward", reward)[0])
        found.append((float(reward[0]), bool(terminated[0]), bool(truncated[0]), lost, raw))
    return found


def test_what_the_step_after_a_lost_life_earns_counts_for_the_game_only() -> None:
    assert play((1, True, False, 2), (5, False, False, 2), (1, True, False, 0)) == [
        (1, True, False, True, 1),
        (0, False, False, False, 5),
        (1, True, False, False, 1),
    ]


@pytest.mark.parametrize("ends", [(True, False), (False, True)])
def test_vector_code_that_ends_a_first_row_ends_the_next_one(ends: tuple[bool, bool]) -> None:
    rows = ((1, True, False, 2), (0, *ends, 0), (0, False, False, 3), (0, False, False, 3))
    assert [row[1:4] for row in play(*rows)] == [
        (True, False, True),
        (False, False, False),
        (*ends, False),
        (False, False, False),
    ]


def test_stacks_are_made_around_it() -> None:
    config = {"env_name": "atari:Pong", "frame_stack": 4}
    obs_spec, action_spec = derive_specs(config)
    assert (obs_spec, action_spec) == (
        {"type": "uint8", "dim": [4, 84, 84]},
        {"type": "discrete", "dim": [6]},
    )
    resolved = {**config, "obs_spec": obs_spec, "action_spec": action_spec}
    env = stack_frames(make_vector_env(resolved, num_envs=2, seed=0), resolved)
    with contextlib.closing(env):
        assert env.reset()[0].shape == (2, 4, 84, 84)
    with pytest.raises(SpecError, match="differs from the environment"):
        make_vector_env(
            {**config, "obs_spec": {"type": "uint8", "dim": [4, 80, 80]}}, num_envs=1, seed=0
        )


@pytest.mark.parametrize(
    "config",
    [
        {"vector": "sync"},
        {"action_repeat": 2},
        {"limit_episode_length": 10},
        {"info_keys": ["score"]},
        {"wrappers": ["tests.surreal_like.env.samples:Scaled"]},
    ],
)
def test_what_the_vector_code_cannot_do_is_stepped_one_by_one(config: dict[str, Any]) -> None:
    env = make_vector_env({"env_name": "atari:Pong", **config}, num_envs=1, seed=0)
    with contextlib.closing(env):
        assert isinstance(env, SyncVector)
        env.reset()
        env.step(np.zeros(1, np.int64))


def test_a_picture_of_the_screen() -> None:
    env = AtariEnv("Pong")
    env.reset()
    assert env.render().shape == (210, 160, 3)
    assert env.metadata["render_fps"] == 15


def test_games_have_names() -> None:
    assert {"Pong", "MsPacman", "MontezumaRevenge"} <= set(list_games())
    assert "atari:MsPacman" in list_environments()
    with pytest.raises(ConfigError, match=r"no atari:Pnog; did you mean .*atari:Pong"):
        make_env({"env_name": "atari:Pnog"})
    with pytest.raises(ConfigError, match=r"no environment 'Pong'; did you mean .*atari:Pong"):
        make_env({"env_name": "Pong"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"frame_skip": 4}, "an Atari game has no 'frame_skip'; did you mean frameskip?"),
        ({"frameskip": 0}, "frameskip is 0, expected a whole number of 1 or more"),
        ({"noop_max": 2.5}, r"noop_max is 2.5, expected a whole number of 0 or more"),
        ({"repeat_action_probability": 2}, "repeat_action_probability is 2, expected 0 to 1"),
        ({"img_height": 500}, r"an image of \[210, 160\] cannot be shrunk to \[500, 84\]"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        derive_specs({"env_name": "atari:Pong", "env_args": arguments})


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(MissingExtra, match=r"atari:Pong .*\[atari\]"):
        make_env({"env_name": "atari:Pong"})


@pytest.mark.slow
def test_no_ops_are_drawn_as_the_vector_code_draws_them() -> None:
    # The first words of this generator with seed 1, and the draws that follow from them.
    words = mersenne_words(1)
    assert [words() for _ in range(3)] == [1791095845, 4282876139, 3093770124]
    words = mersenne_words(1)
    assert [draw_below(30, words) for _ in range(3)] == [12, 29, 21]
    biased = iter([0, 2**32 - 1])  # 0 would come too often: drawn again
    assert draw_below(30, lambda: next(biased)) == 29
    vector = importlib.import_module("ale_py.vector_env")
    games = vector.AtariVectorEnv("breakout", 4, num_threads=1, stack_num=1)
    _, info = games.reset(seed=np.array(SEEDS))
    drawn = [draw_below(30, mersenne_words(seed)) for seed in SEEDS]
    assert info["episode_frame_number"].tolist() == [max(one, 1) for one in drawn]
