"""Films of evaluations: which ones, how long, never over another file, and never in the way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest

from session.process.context import Context
from surreal_like.addons.video import film as films
from surreal_like.addons.video.film import Film
from surreal_like.addons.video.hooks import make_film as film_of
from surreal_like.addons.video.video import VideoFile
from surreal_like.agent.evaluation import Evaluation
from tests.session.tensorplex.rig import MakeRig
from tests.session.tensorplex.rig import make_rig as make_rig

LENGTH = 5


class Drawn:
    """A player, and its only environment, whose pictures count its steps."""

    def __init__(self) -> None:
        self.env = self
        self.steps = 0
        self.metadata = {"render_fps": 10}
        self.broken: Exception | None = None

    def render(self) -> Any:
        if self.broken is not None:
            raise self.broken
        return np.full((32, 32, 3), self.steps % 256, np.uint8)


@pytest.fixture
def make_film(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Film, Drawn, Context]]:
    monkeypatch.setattr(films, "make_drawing_player", lambda make, config: make(config))

    def make(**video: int) -> tuple[Film, Drawn, Context]:
        context = make_rig(evaluator={"video": video}).context("eval-0")
        player: Any = Drawn()
        film = film_of(context)
        assert film is not None
        made: Any = film.make_player(lambda config: player)
        assert made is player
        return film, player, context

    return make


def evaluate(film: Film, player: Drawn, *, episodes: int = 3, version: int = 1) -> None:
    """Plays an evaluation of one environment, whose episodes have 5 steps."""
    evaluation = Evaluation(episodes, 1)
    film.begin(1000, version)
    for number in range(1, episodes * LENGTH + 1):
        player.steps += 1
        ends = [(0, {"return": float(LENGTH), "length": LENGTH})] if number % LENGTH == 0 else []
        evaluation.count(ends, 1)
        film.step(evaluation)
    assert evaluation.over


def frames(path: Path) -> int:
    number, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    return int(number)


def test_of_each_nth_evaluation_the_first_episodes_are_filmed(make_film: Any) -> None:
    film, player, context = make_film(every=2, episodes=2)
    for version in range(1, 5):
        evaluate(film, player, version=version)
    found = {path.name: frames(path) for path in (context.folder.path / "videos").iterdir()}
    # The picture after the reset, and one after each step.
    assert found == {"1000-1.mp4": 1 + 2 * LENGTH, "1000-3.mp4": 1 + 2 * LENGTH}


def test_an_evaluation_shorter_than_the_film_ends_it(make_film: Any) -> None:
    film, player, context = make_film(every=1, episodes=9)
    evaluate(film, player, episodes=1)
    [path] = (context.folder.path / "videos").iterdir()
    assert frames(path) == 1 + LENGTH


def test_no_film_is_written_over(make_film: Any) -> None:
    film, player, context = make_film(every=1, episodes=1)
    for _ in range(3):  # the same version, confirmed
        evaluate(film, player)
    names = sorted(path.name for path in (context.folder.path / "videos").iterdir())
    assert names == ["1000-1-2.mp4", "1000-1-3.mp4", "1000-1.mp4"]


@pytest.mark.parametrize("when", ["begin", "middle", "end"])
def test_a_film_that_fails_is_one_event_and_no_evaluation(
    make_film: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    film, player, context = make_film(every=1, episodes=1)
    if when == "begin":
        player.broken = OSError("no driver")
    elif when == "middle":
        monkeypatch.setattr(VideoFile, "add", fail_after(3, VideoFile.add))
    else:
        monkeypatch.setattr(VideoFile, "close", fail_after(0, VideoFile.close))
    for _ in range(2):
        evaluate(film, player)
    records = [record for record, _ in context._channels["loggerplex"]._records]
    [event] = [each for each in records if each.get("event") == "not_written"]
    assert event["detail"].startswith("videos of evaluations: ")
    assert list((context.folder.path / "videos").iterdir()) == []


def fail_after(calls: int, method: Callable[..., None]) -> Callable[..., None]:
    """Makes a method that fails from some call on, as on a full disk."""
    left = [calls]

    def failing(*given: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("No space left on device")
        method(*given)

    return failing


@pytest.mark.slow
def test_without_videos_no_package_of_them_is_imported() -> None:
    code = "import sys, surreal_like.policies.evaluator_builder; print('imageio' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code + "; print('surreal_like.addons.video.video' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False"]
