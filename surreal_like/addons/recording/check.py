"""Refuses settings with which a recording cannot be made or learned from, before a run starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from session.addons import count_acting
from session.config import Config
from session.config.merge import leaves
from session.errors import ConfigError
from session.folder import RunFolder
from surreal_like.addons.recording.dataset import open_source
from surreal_like.addons.recording.sources import DATASET_KEY, DEMOS_KEY, path_in
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.replay.replay import load_replay_class
from surreal_like.replay.settings import shard_of
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
        parts = _count(config, DATASET_KEY, settings.capacity) if seen else []
        rows, begins = (sum(each) for each in zip(*parts, strict=True)) if seen else (0, 0)
        if seen and settings.min_size > begins and not acting:
            raise ConfigError(
                f"learner_config.replay.min_size is {settings.min_size:,}, but samples begin at "
                f"only {begins:,} of the {rows:,} rows of {path}, as an episode's last row has no "
                f"next one, and no others come: set it to {begins:,} or less"
            )
    if (path := path_in(config, DEMOS_KEY)) and (here or Path(path).is_dir()):
        for index, (_, begins) in enumerate(_count(config, DEMOS_KEY, settings.demos.capacity)):
            if begins < 1:
                raise ConfigError(
                    f"{DEMOS_KEY} is {path}, but the part of shard replay-{index} has no "
                    "sample: it would wait for demonstrations for ever; lower "
                    "learner_config.replay.replay_shards, or record more"
                )


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
    if count_acting(config.session_config):
        return
    settings = config.learner_config.replay
    if ratio := settings.samples_per_insert:
        raise ConfigError(
            f"learner_config.replay.samples_per_insert is {ratio:g}, but no rows come after those "
            f"of {DATASET_KEY}, so that learning would stop: set it to 0"
        )
    if most := settings.age.max_versions:
        raise ConfigError(
            f"learner_config.replay.age.max_versions is {most}, but recorded rows have version 0 "
            "and no others come, so that learning would stop: set it to 0"
        )
    _check_clocks(config)


def _check_clocks(config: Config) -> None:
    """Refuses schedules of the learner that would stay where they begin."""
    given = leaves(config.learner_config)
    for key, clock in given.items():
        name = key.removesuffix(".by")
        # Those of exploration are for agents.
        learned = name.endswith(("learning_rate", "beta", "proportion"))
        if learned and clock == "env_steps" and given[f"{name}.kind"] != "constant":
            raise ConfigError(
                f"learner_config.{key} is env_steps, but session_config.agent.num is 0: no step "
                "is made, so that it would never change; set it to iterations"
            )


def _count(config: Config, key: str, capacity: int) -> list[tuple[int, int]]:
    """Returns for each shard its recorded rows, and those at which samples begin.

    The latter may be a few more: none begins at the last row of an episode, and where a stream is
    cut, its last steps lack others.

    Raises:
        ConfigError: the recording still changes, has no rows, or more than a shard holds.
    """
    recording = open_source(config, key, config.get("policy", DEFAULT_POLICY))
    where = f"{key} is {path_in(config, key)}"
    for place in (recording.path, recording.path.parent):
        run = RunFolder(place.parent)
        # A process that begins again counts the chunks anew: they must be the same.
        if place == run.recording and run.in_use:
            raise ConfigError(
                f"{where}, but run {run} goes on and its recording still changes: wait until it "
                f"is over, or take a copy of {place}"
            )
    settings = config.learner_config.replay
    steps = sum(load_replay_class(config.learner_config).steps_of_sample(config.learner_config))
    shards, room = settings.replay_shards, shard_of(capacity, settings)
    rows, begins = [0] * shards, [0] * shards
    streams: list[set[tuple[str, int, int]]] = [set() for _ in range(shards)]
    # A recording may be larger than the memory: no chunk is kept.
    for shard, chunk in recording.parts(shards):
        rows[shard] += chunk.size
        begins[shard] += chunk.count_steps()
        streams[shard] |= {(chunk.sender, chunk.incarnation, number) for number in chunk.streams}
    if not any(rows):
        damage = f": {recording.damages[0]}" if recording.damages else ""
        raise ConfigError(f"{where}, which has no rows to learn from{damage}")
    if lost := sum(max(0, each - room) for each in rows):
        setting = "learner_config.replay" + (".demos" if key == DEMOS_KEY else "")
        raise ConfigError(
            f"{where} of {sum(rows):,} rows, but {setting}.capacity is {capacity:,}: {lost:,} rows "
            f"would be lost; raise it to {max(rows) * shards:,}"
        )
    cut = [len(each) * (steps - 1) for each in streams]
    return [(rows[shard], begins[shard] - cut[shard]) for shard in range(shards)]
