"""Refuses settings with which a recording cannot be made or learned from, before a run starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from session.addons import count_acting
from session.config import Config
from session.errors import ConfigError
from surreal_like.addons.recording.dataset import open_source
from surreal_like.addons.recording.sources import DATASET_KEY, DEMOS_KEY, path_in
from surreal_like.data.policy_names import DEFAULT_POLICY
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
        steps = sum(replay.steps_of_sample(config.learner_config))
        rows, begins = _count(config, DATASET_KEY, settings.capacity, steps) if seen else (0, 0)
        if seen and settings.min_size > begins and not acting:
            raise ConfigError(
                f"learner_config.replay.min_size is {settings.min_size:,}, but samples begin at "
                f"only {begins:,} of the {rows:,} rows of {path}, as an episode's last row has no "
                f"next one, and no others come: set it to {begins:,} or less"
            )
    if (path := path_in(config, DEMOS_KEY)) and (here or Path(path).is_dir()):
        _count(config, DEMOS_KEY, settings.demos.capacity)


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


def _count(config: Config, key: str, capacity: int, steps: int = 1) -> tuple[int, int]:
    """Returns the recorded rows, and those at which samples of so many steps begin.

    These may be a few more: none begins at the last row of an episode, and where a stream is cut,
    its last steps lack others.

    Raises:
        ConfigError: there are more rows than replay holds, or none.
    """
    recording = open_source(config, key, config.get("policy", DEFAULT_POLICY))
    rows = begins = 0
    streams: set[tuple[str, int, int]] = set()
    # A recording may be larger than the memory: no chunk is kept.
    for _, chunk in recording.chunks():
        rows += chunk.size
        begins += chunk.count_steps()
        streams |= {(chunk.sender, chunk.incarnation, number) for number in chunk.streams}
    where = f"{key} is {path_in(config, key)}"
    if not rows:
        damage = f": {recording.damages[0]}" if recording.damages else ""
        raise ConfigError(f"{where}, which has no rows to learn from{damage}")
    if rows > capacity:
        setting = "learner_config.replay" + (".demos" if key == DEMOS_KEY else "")
        raise ConfigError(
            f"{where} of {rows:,} rows, but {setting}.capacity is "
            f"{capacity:,}: {rows - capacity:,} rows would be lost; raise it"
        )
    return rows, begins - len(streams) * (steps - 1)
