"""Wrapper that sends all experience of an environment to replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from session import nest
from session.config import Config
from session.context import Context
from session.default_configs import BASE_SESSION_CONFIG
from session.errors import ConfigError, DeadlineError, UsageError
from session.nest import Array, Nest
from session.wire.sockets import poll
from surreal_like.data.frames import stack_size
from surreal_like.data.spec import parse_action_spec
from surreal_like.env.base import Env, Info, VectorEnv, VectorStep, VectorWrapper
from surreal_like.env.chunk_episodes import ChunkEpisodes, Flags, Row
from surreal_like.env.episodes import EpisodeSummary
from surreal_like.env.lead_in import LeadIn
from surreal_like.env.row_buffer import RowBuffer
from surreal_like.env.sender import ExpSender, SenderLink
from surreal_like.env.vector import as_vector
from surreal_like.errors import DataError
from surreal_like.replay.kind import load_replay_class

_PUMP_SECONDS = 0.01
_POLL_SECONDS = 0.02
_FULL_SECONDS = 120.0
# Fast environments fill a chunk much sooner.
_FLUSH_SECONDS = 5.0
_NOT_COLUMNS = {"raw_reward", "metrics", "life_lost"}


class ExpSenderWrapper(VectorWrapper):
    """Sends all experience of an environment to replay, in chunks.

    It is a VectorEnv of N streams, also around a single Env. ``step`` takes what ``act``
    returned: actions, or ``(actions, extras)``; extras, a nest of arrays ``[N, ...]``, become
    columns and do not reach the environment. The keys of ``env_config.info_keys`` become columns
    beside them.

    Args:
        env: an Env (N = 1) or a VectorEnv.
        learner_config: its replay defines whether chunks are whole unrolls; left out: they are not.
        session_config: its section ``sender`` has the settings for cutting and keeping chunks.
        context: of this process. In a script it is left out: then the first ``reset`` connects,
            and ``step`` waits while too many rows are unacked.

    Raises:
        ConfigError: ``sender.cut`` is ``episodes``, but there are several streams.
    """

    def __init__(
        self,
        env: Env | VectorEnv,
        learner_config: Mapping[str, Any] | None = None,
        session_config: Mapping[str, Any] | None = None,
        *,
        context: Context | None = None,
    ) -> None:
        super().__init__(as_vector(env))
        if session_config is None and context is not None:
            session_config = context.config.session_config
        self._session = Config(session_config or {}).extend(BASE_SESSION_CONFIG)
        if learner_config is None and context is not None:
            learner_config = context.config.learner_config
        self._overlap = 0 if learner_config is None else load_replay_class(learner_config).overlap
        self._settings = check_sender(self._session.sender, self.num_envs, self._overlap)
        # The newest row, which waits for its action; flags of episodes that end and begin at it.
        self._row: Row = {}
        self._last = self._first = np.ones(self.num_envs, np.bool_)
        self._buffer = RowBuffer(
            self._settings.flush_iteration,
            self.num_envs,
            obs_spec=self.obs_spec,
            action_spec=self.action_spec,
            overlap=self._overlap,
        )
        self._action_dtype = parse_action_spec(self.action_spec).array.dtype
        self._episodes = ChunkEpisodes(self.num_envs)
        self._streams = list(range(self.num_envs))
        self._first_at = self._pump_at = 0.0
        self._cut_at_ends = self._settings.cut == "episodes"
        self._flush_seconds = flush_seconds(self._settings, self._overlap)
        self._in_script = context is None
        self._lead_in = LeadIn(0)
        self._link = None if context is None else self._linked(context)

    @property
    def sender(self) -> ExpSender:
        """The sender of the chunks."""
        return self._connected().sender

    @property
    def ready(self) -> bool:
        """True while another step may be taken; otherwise too many chunks are unacked."""
        return self._connected().sender.window.ready

    @property
    def first(self) -> Flags:
        """True where an episode begins at the newest row, bool ``[N]``."""
        return self._first

    @property
    def finished(self) -> list[EpisodeSummary]:
        """Summaries of the episodes that the newest step ended."""
        return self._episodes.newest

    @property
    def num_finished(self) -> int:
        """Number of episodes that the newest step ended; cheaper than their summaries."""
        return self._episodes.num_newest(self._last)

    def pop_recent(self) -> list[EpisodeSummary]:
        """Returns summaries of episodes that ended since the last call, at most the newest 1000."""
        self._episodes.count()
        recent = list(self._episodes.recent)
        self._episodes.recent.clear()
        return recent

    def reset(self) -> tuple[Nest, Info]:
        """Resets all streams; those in the middle of an episode are cut and get new numbers."""
        self._connected()
        self._end_rows()
        obs, info = self.env.reset()
        self._episodes.reset()
        self._last = np.ones(self.num_envs, np.bool_)
        no = np.zeros(self.num_envs, np.bool_)
        self._observe(obs, np.zeros(self.num_envs, np.float32), no, no, info)
        return obs, info

    def step(self, actions: Any) -> VectorStep:
        """Writes the row at which the actions were taken, and steps.

        Raises:
            DataError: a field is NaN or has a wrong dtype, shape or value; the message names it.
            DeadlineError: in a script: replay has acked nothing for too long.
        """
        row = self._row
        if not row:
            raise UsageError("step() without reset(): an episode begins with reset()")
        if self._in_script:
            self._wait_until_ready()
        extras: Any = None
        if type(actions) is tuple:
            actions, extras = actions
        if type(actions) is not np.ndarray or actions.dtype is not self._action_dtype:
            actions = self._converted(actions)
        # Copied, because rows are kept until they are cut and the agent may reuse its arrays.
        row["action"] = actions.copy()
        if extras:
            row.update(nest.flatten(nest.map(_copied, extras), "extras"))
        self._write(row)
        # The row is in the buffer now; if the step fails, `finish` must not write it again.
        self._row = {}
        obs, reward, terminated, truncated, info = self.env.step(actions)
        self._observe(obs, reward, terminated, truncated, info)
        self._episodes.observe(self._row, info)
        return obs, reward, terminated, truncated, info

    def finish(self) -> None:
        """Ends all streams: sends all rows, the last observations included, then the goodbye."""
        self._end_rows(final=True)
        self.sender.send_goodbye()

    def pump(self) -> None:
        """Reads acks, sends what can be sent, and cuts a chunk that has waited long enough."""
        link = self._connected()
        if self._flush_due(link.now()):
            # The newest row, and the episodes that ended at it, are not in this chunk.
            self._episodes.count()
            self._cut()
        link.sender.pump()
        if self._in_script:
            link.context.pulse()

    def pump_in_step(self) -> None:
        """Sends what can be sent while the environments step; the newest row is written then."""
        link = self._connected()
        if self._flush_due(link.now()):
            self._episodes.count()
            if self._episodes.waiting:
                self._episodes.write(link.acting.metrics)
            self._cut()
        link.sender.pump()

    def _flush_due(self, now: float) -> bool:
        """Returns True if the rows of a short chunk have waited long enough."""
        seconds = self._flush_seconds
        return bool(seconds and self._buffer.rows) and now - self._first_at >= seconds

    def close(self) -> None:
        """Closes the environment; in a script first sends all rows, with a deadline for acks."""
        if self._in_script and self._link is not None:
            self.finish()
            self._link.leave()
            self._link = None
        super().close()

    def _observe(
        self,
        obs: Nest,
        reward: Array,
        terminated: Flags,
        truncated: Flags,
        info: Info,
    ) -> None:
        """Begins a row; it is complete when its action is known."""
        row = {"obs": obs} if type(obs) is np.ndarray else nest.flatten(obs, "obs")
        row["reward"] = reward
        row["terminated"] = terminated
        row["truncated"] = truncated
        if info:
            for name in info.keys() - _NOT_COLUMNS:
                row[f"extras/{name}"] = info[name]
        self._row = row
        self._first, self._last = self._last, terminated | truncated
        if self._overlap and self._buffer.rows == self._buffer.length:
            self._buffer.write_end(row)
            self._cut(overlap=self._overlap)

    def _write(self, row: dict[str, Array]) -> None:
        link, buffer = self._link or self._connected(), self._buffer
        now, acting = link.now(), link.acting
        if buffer.version != acting.version:
            buffer.begin_version(acting.version)
        if not buffer.rows:
            self._first_at = now
        buffer.write(row)
        late = now >= self._pump_at
        flush = late and self._flush_due(now)
        if acting.metrics or flush:
            self._episodes.count()
        if self._episodes.waiting:
            self._episodes.write(acting.metrics)
        full = buffer.rows == buffer.length and not self._overlap
        if full or (self._cut_at_ends and self._last[0]):
            self._cut()
        elif late:
            self._pump_at = now + _PUMP_SECONDS
            if self._in_script or flush or not link.sender.window.empty:
                self.pump()

    def _end_rows(self, *, final: bool = False) -> None:
        """Writes the newest row, at which no action will be taken, and cuts the last chunk."""
        self._episodes.count()
        row, self._row = self._row, {}
        # Without a newest row the last step has failed: its action was not taken.
        tail = final and not row and self._buffer.rows > 0
        # If every stream has just begun, there is nothing to complete.
        if row and not self._first.all():
            self._buffer.write_end(row)
            self._episodes.write(self._connected().acting.metrics)
            tail = final or not self._last.all()
        full = self._buffer.rows == self._buffer.length
        if full or (self._buffer.rows and (final or tail)):
            self._cut(tail=tail)
        if tail:
            self._buffer.begin()
            self._streams = [stream + self.num_envs for stream in self._streams]

    def _cut(self, *, tail: bool = False, overlap: int = 0) -> None:
        columns = self._buffer.cut(overlap=overlap)
        finished = self._episodes.take(columns, overlap)
        lead_in = self._lead_in.take(columns, overlap=overlap)
        self.sender.send(
            columns,
            streams=self._streams,
            finished=finished,
            tail=tail,
            first_seconds=self._first_at,
            overlap=overlap,
            lead_in=lead_in,
        )

    def _converted(self, actions: Any) -> Array:
        array, wanted = _array(actions), self._action_dtype
        if not np.can_cast(array.dtype, wanted, "same_kind"):
            raise DataError(f"action: {array.dtype} given, expected {wanted}")
        return array.astype(wanted)

    def _connected(self) -> SenderLink:
        if self._link is None:
            from surreal_like.script import at_leave, script_context

            self._link = self._linked(script_context(self._session, "agent"))
            at_leave(self.close)
        return self._link

    def _linked(self, context: Context) -> SenderLink:
        if self._overlap:
            self._lead_in = LeadIn(stack_size(context.config.env_config) - 1)
        return SenderLink(context, self._settings)

    def _wait_until_ready(self) -> None:
        link = self._connected()
        deadline = link.now() + _FULL_SECONDS
        while not self.ready and not link.context.stopping:
            if link.now() >= deadline:
                raise DeadlineError(
                    f"replay has not confirmed {link.sender.window.unacked} rows for "
                    f"{_FULL_SECONDS:g} s: is it running, and does the learner use its rows?"
                )
            poll([link.sender.socket], _POLL_SECONDS)
            self.pump()


def flush_seconds(settings: Config, overlap: int) -> float:
    """Returns the seconds after which a chunk is sent that is not full; 0: never.

    Args:
        settings: ``session_config.sender``.
        overlap: of the replay's class; whole unrolls are never sent before they are full.
    """
    given: float | None = settings.flush_time
    if given is None:
        return 0.0 if overlap else _FLUSH_SECONDS
    return given


def check_sender(settings: Config, num_envs: int, overlap: int) -> Config:
    """Returns the settings ``session_config.sender``; raises ConfigError if they contradict.

    Args:
        num_envs: streams of the agent.
        overlap: of the replay's class: rows that are in two chunks.
    """
    if overlap and settings.flush_time:
        raise ConfigError(
            f"session_config.sender.flush_time is {settings.flush_time}, but this replay takes "
            "whole unrolls of flush_iteration steps only: set it to null"
        )
    if overlap and settings.cut != "steps":
        raise ConfigError(
            f"session_config.sender.cut is {settings.cut}, but this replay takes whole unrolls, "
            "in which episodes end anywhere: write steps"
        )
    if settings.flush_iteration < 1:
        raise ConfigError(
            f"session_config.sender.flush_iteration is {settings.flush_iteration}: "
            "expected 1 step or more"
        )
    if settings.cut == "episodes" and num_envs > 1:
        raise ConfigError(
            f"session_config.sender.cut is episodes, but there are {num_envs} streams, whose "
            "episodes end at different times: write steps, or env_config.num_envs: 1"
        )
    return settings


def _copied(value: Any) -> Array:
    return np.array(_array(value))


def _array(value: Any) -> Array:
    """Returns the value as an array; tensors are recognised without importing torch."""
    detach = getattr(value, "detach", None)
    return np.asarray(value if detach is None else detach().cpu())
