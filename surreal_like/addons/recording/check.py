"""Refuses settings with which a recording cannot be made or learned from, before a run starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from session.addons import count_acting
from session.config import Config
from session.errors import ConfigError
from surreal_like.addons.recording.dataset import open_dataset
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.experience.chunk import Chunk

_PATH = "session_config.dataset.path"


def check_recording(config: Config, replay: type[Any], *, synchronous: bool, here: bool) -> None:
    """Refuses a data set that the policy cannot learn from.

    Raises:
        ConfigError: its algorithm learns from its own newest rows only, the rows do not fit, or
            replay cannot hold them; the message has the arithmetic.
        UsageError: there is no recording.
    """
    session, path = config.session_config, config.session_config.dataset.path
    if not path:
        return
    if replay.gives() != "rows":
        raise ConfigError(
            f"{_PATH} is {path}, but {config.algorithm} learns from {replay.gives()} of its own "
            "policy, and these rows are of another one: take dqn, ddpg, td3, sac, bc or iql"
        )
    settings = config.learner_config.replay
    if settings.samples_per_insert and not count_acting(session):
        raise ConfigError(
            f"learner_config.replay.samples_per_insert is {settings.samples_per_insert:g}, but no "
            f"rows come after those of {_PATH}, so that learning would stop: set it to 0"
        )
    if not here:
        return
    recording = open_dataset(config, config.get("policy", DEFAULT_POLICY))
    chunks = [chunk for _, chunk in recording.chunks()]
    rows = sum(chunk.size for chunk in chunks)
    if rows > settings.capacity:
        raise ConfigError(
            f"{_PATH} is {path} of {rows:,} rows, but learner_config.replay.capacity is "
            f"{settings.capacity:,}: {rows - settings.capacity:,} rows would be lost; raise it"
        )
    begins = _count_begins(chunks, sum(replay.steps_of_sample(config.learner_config)))
    if settings.min_size > begins and not count_acting(session):
        raise ConfigError(
            f"learner_config.replay.min_size is {settings.min_size:,}, but samples begin at "
            f"{begins:,} of the {rows:,} rows of {path} only, and no others come: lower it"
        )


def _count_begins(chunks: Sequence[Chunk], steps: int) -> int:
    """Returns a number of rows at which samples of so many steps begin; it may be a few more.

    None begins at the last row of an episode. Where a stream is cut, its last steps lack others.
    """
    streams = {(each.sender, each.incarnation, n) for each in chunks for n in each.streams}
    return sum(map(Chunk.count_steps, chunks)) - len(streams) * (steps - 1)
