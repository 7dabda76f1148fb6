"""Films of evaluations: the pictures of their first environment, in files of the run folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from session.config import Config
from session.errors import UsageError, describe
from session.process.context import Context
from surreal_like.addons.video.video import (
    VideoFile,
    draw,
    drawing_settings,
    frames_per_second,
    make_drawing_player,
)
from surreal_like.agent.evaluation import Evaluation
from surreal_like.agent.player import Player


class Film:
    """Writes the first episodes of each n-th evaluation into ``videos/`` of the run folder.

    An error ends all filming with one event; evaluations go on.

    Args:
        context: context of the evaluator.
    """

    def __init__(self, context: Context) -> None:
        assert context.folder is not None  # an evaluator without one films nothing
        settings = context.config.session_config.evaluator.video
        self._context, self._folder = context, context.folder.path / "videos"
        self._every: int = settings.every
        self._episodes: int = settings.episodes
        self._number = 0
        self._player: Player | None = None
        self._video: VideoFile | None = None
        self._settings = ExitStack()

    def limit(self, streams: int, episodes: int) -> int:
        """Returns the number of environments, so that the first one plays all that is filmed.

        Args:
            streams: number without a film.
            episodes: number of episodes of an evaluation.
        """
        return max(1, min(streams, episodes // self._episodes))

    def make_player(self, make: Callable[[Config], Player]) -> Player:
        """Builds the environments of evaluations, of which the first one is filmed if it can be."""
        config = self._context.config
        self._settings.enter_context(drawing_settings(window=False))
        try:
            self._player = make_drawing_player(make, config)
        except UsageError as error:
            self._end(error)
        return self._player or make(config)

    def begin(self, env_steps: int, version: int) -> None:
        """Begins an evaluation, after the reset of its environments.

        Args:
            env_steps: environment steps of the run.
            version: version that plays.
        """
        filmed = self._number % self._every == 0
        self._number += 1
        if filmed and (player := self._player) is not None:
            self._try(lambda: self._begin(player, f"{env_steps}-{version}"))

    def _begin(self, player: Player, name: str) -> None:
        folder = self._folder
        folder.mkdir(exist_ok=True)
        path, number = folder / f"{name}.mp4", 1
        while path.exists():
            number += 1
            path = folder / f"{name}-{number}.mp4"
        self._video = VideoFile(path, frames_per_second(player, self._context.config.env_config))
        self._add(player, self._video)

    def _add(self, player: Player, video: VideoFile) -> None:
        video.add(draw(player, self._context.config.env_config.env_name))

    def step(self, evaluation: Evaluation) -> None:
        """Adds a frame after a step of an evaluation; the last one completes the file."""
        video, player = self._video, self._player
        if video is not None and player is not None:
            self._try(lambda: self._step(player, video, evaluation))

    def _step(self, player: Player, video: VideoFile, evaluation: Evaluation) -> None:
        self._add(player, video)
        if evaluation.over or evaluation.first_ended >= self._episodes:
            video.close()
            self._video = None

    def close(self) -> None:
        """Removes a video that is not complete, after the environments were closed."""
        self._discard()
        self._settings.close()

    def _discard(self) -> None:
        if self._video is not None:
            self._video.discard()
            self._video = None

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a film must not end an evaluation
            self._discard()
            self._end(error)

    def _end(self, error: Exception) -> None:
        """Films no more, and reports why, as an event."""
        self._player = None
        self._context.event("not_written", f"videos of evaluations: {describe(error)}")
