"""Refuses settings with which a recording cannot be made or learned from, before a run starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from session.addons import count_acting
from session.config import Config
from session.errors import ConfigError
from session.folder import RunFolder
from surreal_like.addons.recording.dataset import open_source
from surreal_like.addons.recording.sources import DATASET_KEY, DEMOS_KEY, path_in
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.replay import load_replay_class
from surreal_like.replay.table import Table


def check_recording(config: Config, replay: type[Any], *, synchronous: bool, here: bool) -> None:
    """Refuses recordings that the policy cannot learn from.

    Raises:
        ConfigError: its algorithm learns from its own newest rows only, the rows do not fit, or
            replay cannot hold them; the message has the arithmetic.
        UsageError: there is no recording.
    """
    session = config.session_config
    if session.flight.keep != "none" and session.record.what == "none":
        raise ConfigError(
            "session_config.flight.keep is all, but session_config.record.what is none: the "
            "updates are repeated from recorded rows, so set it to all"
        )
    if session.flight.keep != "none":
        refuse_unrepeatable(config)
    settings, acting = config.learner_config.replay, count_acting(config.session_config)
    if path := path_in(config, DATASET_KEY):
        _check_dataset(config, replay, path)
        # It may lie on other machines.
        seen = here or Path(path).is_dir()
        chunks = _check_room(config, DATASET_KEY, settings.capacity) if seen else []
        begins = _count_begins(chunks, sum(replay.steps_of_sample(config.learner_config)))
        if seen and settings.min_size > begins and not acting:
            raise ConfigError(
                f"learner_config.replay.min_size is {settings.min_size:,}, but samples begin at "
                f"only {begins:,} of the {_count_rows(chunks):,} rows of {path}, as an episode's "
                f"last row has no next one, and no others come: set it to {begins:,} or less"
            )
    if (path := path_in(config, DEMOS_KEY)) and (here or Path(path).is_dir()):
        _check_room(config, DEMOS_KEY, settings.demos.capacity)


def refuse_unrepeatable(config: Config) -> None:
    """Refuses experiments whose updates go by more than a journal has.

    Args:
        config: config of the run, or of its policy.

    Raises:
        ConfigError: says by what.
    """
    replay, kind = config.learner_config.replay, load_replay_class(config.learner_config)
    for wrong, what in (
        (not issubclass(kind, Table), f"{kind.__name__} is a replay of its own"),
        (kind.gives() == "gradients", f"{kind.__name__} gives {kind.gives()}"),
        (replay.hindsight.proportion > 0, "goals of hindsight are drawn anew"),
        (bool(replay.demos.path), "demonstrations are a second table"),
        (config.session_config.learner.num > 1, "several learners make each update"),
    ):
        if wrong:
            raise ConfigError(
                f"session_config.flight.keep is all, but this run cannot be repeated: {what}"
            )


def _check_dataset(config: Config, replay: type[Any], path: str) -> None:
    if replay.gives() != "rows":
        raise ConfigError(
            f"{DATASET_KEY} is {path}, but {config.algorithm} learns from {replay.gives()} of its "
            "own policy, and these rows are of another one: take dqn, ddpg, td3, sac, bc or iql"
        )
    ratio = config.learner_config.replay.samples_per_insert
    if ratio and not count_acting(config.session_config):
        raise ConfigError(
            f"learner_config.replay.samples_per_insert is {ratio:g}, but no rows come after those "
            f"of {DATASET_KEY}, so that learning would stop: set it to 0"
        )


def _check_room(config: Config, key: str, capacity: int) -> Sequence[Chunk]:
    """Returns the recorded chunks; refuses those that still change, and more than replay holds."""
    recording = open_source(config, key, config.get("policy", DEFAULT_POLICY))
    for place in (recording.path, recording.path.parent):
        run = RunFolder(place.parent)
        # A process that begins again counts the chunks anew: they must be the same.
        if place == run.recording and run.in_use:
            raise ConfigError(
                f"{key} is {path_in(config, key)}, but run {run} goes on and its recording still "
                f"changes: wait until it is over, or take a copy of {place}"
            )
    chunks = [chunk for _, chunk in recording.chunks()]
    rows = _count_rows(chunks)
    if rows > capacity:
        where = "learner_config.replay" + (".demos" if key == DEMOS_KEY else "")
        raise ConfigError(
            f"{key} is {path_in(config, key)} of {rows:,} rows, but {where}.capacity is "
            f"{capacity:,}: {rows - capacity:,} rows would be lost; raise it"
        )
    return chunks


def _count_rows(chunks: Sequence[Chunk]) -> int:
    return sum(chunk.size for chunk in chunks)


def _count_begins(chunks: Sequence[Chunk], steps: int) -> int:
    """Returns a number of rows at which samples of so many steps begin; it may be a few more.

    None begins at the last row of an episode. Where a stream is cut, its last steps lack others.
    """
    streams = {(each.sender, each.incarnation, n) for each in chunks for n in each.streams}
    return sum(map(Chunk.count_steps, chunks)) - len(streams) * (steps - 1)
