"""Playing for others to see: pictures of whole episodes, out of the run folder alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from session.errors import MissingExtra, UsageError
from session.program import install_line
from surreal_like import train
from surreal_like.addons.analysis.play import play
from surreal_like.errors import DataError
from tests.addons.video.reading_video import read_video

pytestmark = pytest.mark.usefixtures("quick")

OVERRIDES: dict[str, Any] = {
    "learner_config.replay.min_size": 64,
    "learner_config.model.hidden_sizes": [16],
    "env_config.num_envs": 4,
    "session_config.sender.flush_iteration": 8,
    "session_config.stop": {"env_steps": 300, "eval_episodes": 4},
}


def trained(folder: Path, env: str, algorithm: str = "dqn", **settings: Any) -> Path:
    """Return the folder of a small run that has ended."""
    overrides = OVERRIDES | {key.replace("__", "."): value for key, value in settings.items()}
    run = train(algorithm=algorithm, env=env, overrides=overrides, launcher="serial", folder=folder)
    assert run.ok, run.details
    return folder


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("play") / "run", "gym:CartPole-v1")


def walking(folder: Path, name: str, **settings: Any) -> Path:
    return trained(folder / "run", f"tests.surreal_like.drawn:{name}", **settings)


@pytest.mark.parametrize("name", ["out.mp4", "out.gif"])
def test_a_video_shows_every_step_of_the_episodes(
    cartpole: Path, tmp_path: Path, name: str
) -> None:
    found = play(cartpole, video=tmp_path / name, episodes=2, seed=3)
    assert len(found["returns"]) == 2
    # CartPole pays 1 per step; each episode begins with the picture of its reset.
    assert found["returns"] == found["lengths"]
    assert found["frames"] == sum(found["lengths"]) + 2
    assert (found["video"], found["fps"], found["checkpoint"]) == (str(tmp_path / name), 50, "best")
    read, _ = read_video(tmp_path / name)
    assert read[0].shape == (400, 600, 3)
    assert len(read) == found["frames"]


@pytest.mark.slow
def test_the_same_seed_plays_the_same_episode(cartpole: Path, tmp_path: Path) -> None:
    def returns(**options: Any) -> list[float]:
        found: list[float] = play(cartpole, video=tmp_path / "a.mp4", **options)["returns"]
        return found

    assert returns(seed=5, episodes=3) == returns(seed=5, episodes=3) != returns(seed=6, episodes=3)
    assert returns() == returns()
    assert returns(checkpoint="latest", deterministic=False, seed=5)


def test_a_window_shows_the_same(cartpole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pygame.time.Clock", HurriedClock)
    found = play(cartpole, seed=3)
    assert found["video"] is None
    assert found["frames"] == found["lengths"][0] + 1


class HurriedClock:
    """Does not wait for the next picture."""

    def tick(self, fps: float) -> None:
        assert fps == 50


@pytest.mark.slow
def test_wrappers_and_settings_of_the_run_are_there(tmp_path: Path) -> None:
    wrapper = "tests.surreal_like.drawn:Inverted"
    run = walking(
        tmp_path, "Walk", env_config__wrappers=[wrapper], env_config__limit_episode_length=3
    )
    found = play(run, video=tmp_path / "a.mp4")
    assert (found["lengths"], found["returns"], found["fps"]) == ([3], [6.0], 10)
    read, _ = read_video(tmp_path / "a.mp4")
    brightness = [float(frame.mean()) for frame in read]
    assert brightness == pytest.approx([255, 205, 155, 105], abs=4)


@pytest.mark.slow
def test_repeated_actions_keep_the_pace(tmp_path: Path) -> None:
    run = walking(tmp_path, "Walk", env_config__action_repeat=2)
    assert play(run, video=tmp_path / "a.mp4")["fps"] == 5


@pytest.mark.slow
def test_the_algorithm_comes_out_of_the_run_folder(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from surreal_like.algorithm.dqn import DQN\n\n\nclass Mine(DQN):\n    pass\n")
    run = trained(tmp_path / "run", "tests.surreal_like.drawn:Walk", f"{file}:Mine")
    file.unlink()
    assert play(run, video=tmp_path / "a.mp4")["lengths"] == [4]


@pytest.mark.parametrize(
    ("env", "kind", "words"),
    [
        pytest.param(
            "toy:chain",
            UsageError,
            "toy:chain has no pictures to show; .*surreal-like evaluate",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "tests.surreal_like.drawn:Blind",
            UsageError,
            "Blind has no pictures to show",
            marks=pytest.mark.slow,
        ),
        ("tests.surreal_like.drawn:Broken", UsageError, "could not draw itself: .*graphics card"),
        pytest.param(
            "tests.surreal_like.drawn:Float",
            DataError,
            r"render\(\) gave float32 \[16, 16, 3\]",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_seen_is_one_clear_line(
    tmp_path: Path, env: str, kind: type[Exception], words: str
) -> None:
    run = trained(tmp_path / "run", env)
    with pytest.raises(kind, match=words):
        play(run, video=tmp_path / "a.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_environment_of_text_is_refused_politely(
    cartpole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gymnasium.envs.classic_control.cartpole import CartPoleEnv

    monkeypatch.setattr(CartPoleEnv, "metadata", {"render_modes": ["human", "ansi"]})
    with pytest.raises(UsageError, match="its render modes are human, ansi, needed is rgb_array"):
        play(cartpole, video=tmp_path / "a.mp4")


def test_what_draws_and_is_not_installed_is_named(
    cartpole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gymnasium.envs.classic_control.cartpole import CartPoleEnv
    from gymnasium.error import DependencyNotInstalled

    def render(self: object) -> None:
        raise DependencyNotInstalled("pygame is not installed")

    monkeypatch.setattr(CartPoleEnv, "render", render)
    with pytest.raises(MissingExtra, match=re.escape(install_line("video"))):
        play(cartpole, video=tmp_path / "a.mp4")


def test_wrong_orders_are_one_clear_line(cartpole: Path, tmp_path: Path) -> None:
    video = tmp_path / "a.mp4"
    with pytest.raises(UsageError, match="cannot play 0 episodes"):
        play(cartpole, video=video, episodes=0)
    with pytest.raises(UsageError, match="the seed is -1, expected 0 or more"):
        play(cartpole, video=video, seed=-1)
    with pytest.raises(UsageError, match="is not a run folder"):
        play(tmp_path, video=video)
    with pytest.raises(UsageError, match=r"ends in \.mp4 or \.gif"):
        play(cartpole, video="a.txt")
    with pytest.raises(UsageError, match=r"has no checkpoint '17'; it has .*latest, best"):
        play(cartpole, video=video, checkpoint="17")
