"""Sizes of a replay shard of rows, read once from the configs; training in turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.config import Config
from session.errors import ConfigError
from session.process.seeding import component_seed
from surreal_like.replay.limiter import Limiter, Turns
from surreal_like.replay.select.age import AgeRule
from surreal_like.replay.storage import LINK_BYTES
from surreal_like.replay.view.n_step import View

SHARE = "learner_config.replay.replay_proportion"
_TURNS = "learner_config.replay.iteration"


def may_have_guests(session_config: Mapping[str, Any]) -> bool:
    """Returns True if rows may come from other machines: of agents that join, or of clients."""
    gateway = session_config.get("gateway") or {}
    return bool(session_config["launcher"]["host"]) or bool(gateway.get("num"))


class RowPlan:
    """Sizes of a shard of rows.

    Capacity, minimum size and bounds in ``learner_config.replay`` are those of the experiment; one
    shard has its part of each.

    Args:
        learner_config, env_config, session_config: configs of the experiment.
        view: makes the samples.

    Attributes:
        capacity: most rows.
        max_bytes: bound on their memory, 0 for none.
        unit: rows for which a sample counts in the statistics.

    Raises:
        ConfigError: a setting is another replay's, or ``min_size`` can never be reached.
    """

    unit = 1

    def __init__(
        self, learner_config: Config, env_config: Config, session_config: Config, view: View
    ) -> None:
        self._replay = replay = learner_config["replay"]
        self._session = session_config
        self._num_envs, self._view = env_config["num_envs"], view
        self.capacity = shard_of(replay["capacity"], replay)
        self.max_bytes = shard_of(replay["max_bytes"], replay)
        agents = session_config["agent"]["num"]
        # Rows that cannot be sampled at any time.
        self._waiting = view.waiting * self._num_envs * shard_of(agents, replay)
        self._waiting_words = (
            f"agent.num {agents} x num_envs {self._num_envs} x {view.waiting} rows of each, by "
            "n_step or frame_stack"
        )
        in_turns = bool(replay["iteration"]["unroll_length"])
        self._min_size = 1 if in_turns else max(1, shard_of(replay["min_size"], replay))
        if share := replay["replay_proportion"]:
            raise ConfigError(
                f"{SHARE} is {share:g}, but this replay draws each row again and again; it is for "
                "FIFOReplay: set it to 0"
            )
        self._require_room(self.capacity)

    def make_limiter(self) -> Limiter:
        """Makes the limiter by turns where the config has any, else the one by rate.

        A chunk of T steps of N streams makes at most ``(T + n - 1) N`` rows sampleable: n - 1
        earlier ones of each stream may have waited for it.
        """
        replay, session = self._replay, self._session
        if replay["iteration"]["unroll_length"]:
            return _make_turns(replay, session, self._num_envs, self._waiting)
        steps = session["sender"]["flush_iteration"] + self._view.n - 1
        return Limiter(
            self._min_size,
            replay["samples_per_insert"],
            chunk_rows=steps * self._num_envs,
            request_rows=replay["batch_size"] * session["learner"]["batches_per_request"],
        )

    def check_start(self, row_bytes: int, batches: int) -> None:
        """Raises ConfigError if rows of so many bytes must deadlock.

        Args:
            row_bytes: bytes of a row, links included.
            batches: most batches of one answer.
        """
        rows, why = self._room(row_bytes)
        self._require_room(rows, why)
        if lag := self._replay["evict_rule"]["max_version_lag"]:
            raise ConfigError(
                f"learner_config.replay.evict_rule.max_version_lag is {lag}, but it is for "
                "FIFOReplay: set it to 0; replay.age.max_versions keeps old rows out of batches"
            )
        steps, streams = self._session["sender"]["flush_iteration"], self._num_envs
        if steps * streams > rows:
            raise ConfigError(
                f"capacity leaves {rows} rows to a shard{why and f' ({why})'}, but one chunk is "
                f"flush_iteration {steps} x num_envs {streams} = {steps * streams} rows: each would"
                " be dropped; raise the capacity or lower session_config.sender.flush_iteration"
            )
        answer = self._replay["batch_size"] * batches * self._view.rows_each
        require_messages(
            self._session["max_message_bytes"], steps, streams, row_bytes - LINK_BYTES, answer
        )

    def fit(self, row_bytes: int) -> None:
        """Raises ConfigError if rows are too large; the first chunk shows how large they are."""
        self._require_room(*self._room(row_bytes))

    def _room(self, row_bytes: int) -> tuple[int, str]:
        """Returns the rows that fit, and the arithmetic if that is not the capacity."""
        rows = self.max_bytes // row_bytes if self.max_bytes else self.capacity
        if rows >= self.capacity:
            return self.capacity, ""
        return rows, f"{self.max_bytes} bytes of max_bytes / {row_bytes} bytes of a row"

    def _require_room(self, rows: int, why: str = "") -> None:
        """Raises ConfigError if ``min_size`` samples can never start in so many rows."""
        room, period = rows - self._waiting, self._view.period
        if self._min_size <= room // period:
            return
        starts = f", in which {max(room // period, 0)} sequences start, one each {period} rows"
        raise ConfigError(
            f"min_size is {self._min_size}{' sequences' if period > 1 else ''}, but {rows} rows of "
            "capacity"
            f"{why and f' ({why})'} - {self._waiting} rows that still wait for others "
            f"({self._waiting_words}) = {room}{starts if period > 1 else ''}: sampling would never "
            "start; lower min_size or one of these, or raise the capacity"
        )

    @property
    def shape(self) -> dict[str, Any]:
        """Part of a snapshot that must be equal for it to be restored: none."""
        return {}


def require_messages(most: int, steps: int, streams: int, row_bytes: int, rows: int) -> None:
    """Raises ConfigError if a chunk, or an answer to the learner, is too large to be sent.

    Args:
        most: ``session_config.max_message_bytes``.
        steps, streams: shape of a chunk.
        row_bytes: least bytes of a row on the wire.
        rows: rows of one answer.
    """
    for what, count, remedy in (
        (f"chunk of {steps} steps x {streams} streams", steps * streams, "sender.flush_iteration"),
        (f"answer of {rows} rows", rows, "learner.batches_per_request, or replay.batch_size"),
    ):
        if count * row_bytes > most:
            raise ConfigError(
                f"session_config.max_message_bytes is {most}, but one {what} x {row_bytes} bytes "
                f"of a row = {count * row_bytes}: it would never be sent; raise it, or lower "
                f"{remedy}"
            )


def _make_turns(
    replay: Mapping[str, Any], session_config: Config, num_envs: int, waiting: int
) -> Turns:
    """Makes the limiter of ``learner_config.replay.iteration``.

    Args:
        replay: the section of the config.
        session_config: config of the session.
        num_envs: streams of an agent.
        waiting: rows that cannot be sampled at any time.

    Raises:
        ConfigError: it does not go with other settings.
    """
    how = replay["iteration"]
    length, each = how["unroll_length"], session_config["sender"]["flush_iteration"]
    is_on = f"{_TURNS}.unroll_length is {length}, but"
    if replay["replay_shards"] > 1:
        raise ConfigError(
            f"{is_on} replay_shards is {replay['replay_shards']}: iterations need one shard; set "
            "replay_shards to 1"
        )
    if replay["samples_per_insert"]:
        raise ConfigError(
            f"{is_on} samples_per_insert is {replay['samples_per_insert']:g}: an iteration itself "
            "says how much is learned; set samples_per_insert to 0"
        )
    if length % each:
        raise ConfigError(
            f"{is_on} session_config.sender.flush_iteration is {each}: agents send rows in chunks "
            f"of {each} steps; set one to a multiple of the other"
        )
    if how["clear_replay_buffer"] and not how["whole_replay_buffer_training"]:
        raise ConfigError(
            f"{_TURNS}.clear_replay_buffer is true, but whole_replay_buffer_training is false: "
            "rows would go that were never learned from; set both to true"
        )
    streams = session_config["agent"]["num"] * num_envs
    if not streams:
        raise ConfigError(f"{is_on} session_config.agent.num is 0: there is nothing to wait for")
    first = how["initial_collect_steps"]
    needed = length * streams + first + waiting
    if needed > replay["capacity"]:
        raise ConfigError(
            f"{is_on} {length} x {streams} environments + initial_collect_steps {first} + "
            f"{waiting} rows that wait for others = {needed} rows are more than replay.capacity "
            f"{replay['capacity']}: raise the capacity"
        )
    if AgeRule.of(replay).matters:
        raise ConfigError(
            f"{is_on} learner_config.replay.age has a rule: an iteration learns from all rows "
            "alike; set both of its numbers to 0"
        )
    return Turns(
        length * streams,
        first=first,
        updates=how["num_updates_per_train_iter"],
        whole=how["whole_replay_buffer_training"],
        clear=how["clear_replay_buffer"],
        seed=default_seed(session_config),
    )


def is_aligned(learner_config: Mapping[str, Any]) -> bool:
    """Returns True if the unrolls of all streams have to begin at the same step."""
    synchronous = (learner_config.get("algo") or {}).get("synchronous")
    return bool(synchronous) or learner_config.get("gradients_at") == "agent"


def shard_of(total: int, replay: Mapping[str, Any]) -> int:
    """Returns the share of one shard in a number of rows or bytes, rounded up."""
    return -(-total // int(replay["replay_shards"]))


def default_seed(session_config: Config) -> int:
    """Returns the seed of a replay that has not been given one."""
    return component_seed(session_config["seed"], "replay-0", 1)
