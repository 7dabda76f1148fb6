"""The writer of chunks: rows of any number of streams in, chunks out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from session import nest
from session.config import Config
from session.nest import Array, Nest
from surreal_like.data.casts import unpack
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.data.rows import Rows
from surreal_like.data.spec import parse_action_spec
from surreal_like.data.timestep import FIRST, Flags, encode_ends
from surreal_like.env.environment import Info
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.chunk_episodes import ChunkEpisodes, Row
from surreal_like.experience.row_buffer import LeadIn, RowBuffer
from surreal_like.experience.settings import check_sender, flush_seconds
from surreal_like.experience.stream_buffer import Indices, StreamBuffer, StreamRows

_NO_INFO: Info = {}
_NOT_COLUMNS = {"raw_reward", "metrics", "life_lost", "final_obs", "final_info", "absent_streams"}


class RowWriter:
    """Writes the rows of N streams, and cuts them into chunks.

    A row is an observation and the action that is taken at it: :meth:`begin`, :meth:`observe` and
    :meth:`observe_some` begin rows, :meth:`act` completes them. The writer knows no environment
    and no socket, so its streams may be the environments of an agent, the agents of a policy, or
    the clients of a server.

    As long as all streams have a row in each step, the rows are kept as they came and joined once
    for a chunk. From the first step on in which they do not, each stream has rows of its own.

    Args:
        num_streams: N.
        obs_spec, action_spec: specs of one stream.
        settings: ``session_config.sender``.
        overlap: rows at the end of a chunk that the next one begins with: 1 for whole unrolls.
        send: takes each chunk; its numbers are those of this chunk alone.
        ids: source of the ids of streams, shared by all writers of one sender; None: 0, 1, 2, ...
        resets_in_step: True if the step that ends an episode also begins the next one.

    Attributes:
        first: True where an episode begins at the newest row, bool ``[N]``; of steps of all
            streams.
        open: True while the newest rows wait for their actions.

    Raises:
        ConfigError: the settings do not go together.
    """

    def __init__(
        self,
        num_streams: int,
        *,
        obs_spec: Mapping[str, Any],
        action_spec: Mapping[str, Any],
        settings: Config,
        overlap: int,
        send: Callable[[Chunk], None],
        ids: Iterator[int] | None = None,
        resets_in_step: bool = False,
    ) -> None:
        check_sender(settings, num_streams, overlap, resets_in_step=resets_in_step)
        self._send = send
        self._overlap = overlap
        # The newest row of all streams, which waits for its action; where episodes end at it.
        self._row: Row = {}
        self.open = False
        self._last = self.first = np.ones(num_streams, np.bool_)
        self._none = np.zeros(num_streams, np.bool_)
        self._none.flags.writeable = False
        self._buffer = RowBuffer(
            settings.flush_iteration,
            num_streams,
            obs_spec=obs_spec,
            action_spec=action_spec,
        )
        # Rows of streams that have their own; None: all have the same.
        self._some: StreamBuffer | None = None
        self._all = self._at = np.arange(num_streams)
        self._no_streams = self._all[:0]
        # Of a step of all streams, those that have a row; None: all.
        self._present: Flags | None = None
        self._version = 0
        # Takes apart what an agent's ``act`` returned, see :func:`unpack`.
        self.unpack = partial(unpack, dtype=parse_action_spec(action_spec).array.dtype)
        self._episodes = ChunkEpisodes(num_streams)
        self._lead_in = LeadIn(0, num_streams)
        self._ids = itertools.count() if ids is None else ids
        self._streams: Indices = self._new_ids()
        self._first_at = 0.0
        self._cut_at_ends = settings.cut == "episodes"
        self._flush_seconds = flush_seconds(settings, overlap)

    def _new_ids(self) -> Indices:
        return np.array(list(itertools.islice(self._ids, len(self._all))), np.int64)

    @property
    def between_chunks(self) -> bool:
        """True while no action of the next chunk has been written."""
        if self._some is None:
            return not self._buffer.rows
        return self._some.between_chunks

    @property
    def finished(self) -> list[EpisodeSummary]:
        """Summaries of the episodes that ended at the newest row."""
        return self._episodes.newest

    @property
    def num_finished(self) -> int:
        """Number of episodes that ended at the newest row; cheaper than their summaries."""
        return self._episodes.num_newest(self._last)

    def pop_recent(self) -> list[EpisodeSummary]:
        """Returns summaries of episodes that ended since the last call, at most the newest 1000."""
        self._episodes.count()
        recent = list(self._episodes.recent)
        self._episodes.recent.clear()
        return recent

    def keep_frames(self, frames: int) -> None:
        """Sends so many frames before the first row of each chunk along: unrolls need them.

        Args:
            frames: one less than a stack has.
        """
        self._lead_in = LeadIn(frames if self._overlap else 0, len(self._all))

    # -- rows begin -------------------------------------------------------------------------------

    def begin(self, obs: Nest, info: Info) -> None:
        """Begins an episode in every stream; call :meth:`end` before it.

        Args:
            obs: nest of arrays ``[N, ...]``.
            info: see :meth:`observe`.
        """
        self._episodes.reset()
        no, zeros = self._none, np.zeros(len(self._all), np.float32)
        self._last = np.ones(len(self._all), np.bool_)
        if self._some is None:
            self._begin_row(obs, zeros, no, no, info)
        else:
            self._begin_apart(self._some, obs, zeros, (no, no), info)

    def observe(
        self,
        obs: Nest,
        reward: Array,
        terminated: Flags,
        truncated: Flags,
        info: Info,
        *,
        counted: bool = True,
    ) -> None:
        """Begins a row of all streams with the outcome of the last actions.

        Args:
            obs: nest of arrays ``[N, ...]``, at an end of an episode its true last observation.
            reward: rewards of the last action, float32 ``[N]``.
            terminated: True where the task itself ended, bool ``[N]``.
            truncated: True where the episode was cut off, bool ``[N]``.
            info: further columns; ``raw_reward``, ``metrics`` and ``life_lost`` go into the
                summaries of episodes. With ``final_obs`` the next episodes have begun already, and
                with ``absent_streams`` some have no row: see :class:`VectorEnv`.
            counted: False: every stream ends here without an end of its own; this is no episode.
        """
        if self._some is not None or (info and ("final_obs" in info or "absent_streams" in info)):
            self._observe_apart(obs, reward, terminated, truncated, info)
            return
        self._begin_row(obs, reward, terminated, truncated, info)
        if counted:
            self._episodes.observe(self._row, info)
        else:
            self._episodes.discard()

    def observe_some(self, rows: Rows | None, episodes: list[EpisodeSummary]) -> None:
        """Begins rows of some streams with the outcome of the last actions.

        Args:
            rows: the newest rows, None without any.
            episodes: episodes that ended, which are sent with the next chunk.
        """
        self._episodes.add(episodes)
        some = self._some or self._separate()
        self._row, self._at, self.open = {}, self._no_streams, rows is not None
        if rows is not None:
            self._row, self._at = _leaves(rows), rows.streams
        some.begin(self._at, self._row)

    def _begin_row(
        self, obs: Nest, reward: Array, terminated: Flags, truncated: Flags, info: Info
    ) -> None:
        row = {"obs": obs} if type(obs) is np.ndarray else nest.flatten(obs, "obs")
        row["reward"], row["terminated"], row["truncated"] = reward, terminated, truncated
        if info:
            row |= info_columns(info)
        self._row, self.open = row, True
        self.first = self._last
        # Bytes: an operation of numpy costs more, and most steps end nothing.
        ends = 1 in terminated.tobytes() or 1 in truncated.tobytes()
        self._last = terminated | truncated if ends else self._none
        if self._overlap and self._buffer.rows == self._buffer.length:
            self._buffer.write_end(row)
            self._cut()

    def _observe_apart(
        self, obs: Nest, reward: Array, terminated: Flags, truncated: Flags, info: Info
    ) -> None:
        """Begins rows of a step of all streams, each of which has rows of its own."""
        # As many unrolls in a chunk as replay expects of an agent.
        some = self._some or self._separate(group=len(self._all) if self._overlap else 0)
        row = {"reward": reward, "terminated": terminated, "truncated": truncated}
        self._episodes.observe(row, info)
        self._episodes.count()
        if "final_obs" in info:
            last = terminated | truncated
            streams, no = last.nonzero()[0], self._none
            flags = terminated[streams], truncated[streams], no[streams]
            steps = np.ones(len(streams), np.int64)
            rows = Rows(streams, info["final_obs"], reward[streams], *flags, steps)
            final = {**_leaves(rows), **info_columns(info["final_info"])}
            some.write_last(streams, final, self._version)
            reward = np.where(last, np.float32(0.0), reward)
            self._last, terminated, truncated = last, no, no
        self._begin_apart(some, obs, reward, (terminated, truncated), info)

    def _begin_apart(
        self, some: StreamBuffer, obs: Nest, reward: Array, ends: tuple[Flags, Flags], info: Info
    ) -> None:
        self.first, self._last = self._last, ends[0] | ends[1]
        steps = (~self.first).astype(np.int64)
        rows, columns = Rows(self._all, obs, reward, *ends, self.first, steps), info_columns(info)
        self._present = None
        if "absent_streams" in info:
            self._present = ~info["absent_streams"]
            rows = rows.select(self._present)
            columns = {name: column[self._present] for name, column in columns.items()}
        self._row, self._at, self.open = {**_leaves(rows), **columns}, rows.streams, True
        some.begin(self._at, self._row)

    def _separate(self, group: int = 0) -> StreamBuffer:
        """Gives each stream rows of its own, from now on."""
        buffer = self._buffer
        self._episodes.count()
        self._some = some = StreamBuffer(
            buffer.length,
            self._overlap,
            len(self._all),
            checks=buffer.checks,
            lead_in=self._lead_in,
            send=self._send_part,
            group=group,
        )
        for row, first, version in buffer.pop_rows():
            steps = (~first).astype(np.int64)
            some.write(self._all, {**row, "first": first, "steps": steps}, version)
        self._version = buffer.version
        return some

    # -- rows are completed -----------------------------------------------------------------------

    def act(
        self,
        actions: Array,
        extras: Mapping[str, Array],
        *,
        version: int,
        now: float,
        metrics: Mapping[str, float],
    ) -> bool:
        """Completes the newest rows and cuts chunks that are full.

        Args:
            actions: ``[N, ...]``, or of the ``n`` rows of :meth:`observe_some`, as :meth:`unpack`
                gives them; copied: an agent may reuse them.
            extras: column -> ``[N, ...]`` or ``[n, ...]``, as :meth:`unpack` gives them.
            version: version of the parameters that chose the actions.
            now: seconds; the age of a chunk counts from its first row.
            metrics: the agent's own numbers, added to each episode that ended at this row.

        Returns:
            True if a chunk of all streams was cut.

        Raises:
            DataError: a field is NaN or has a wrong dtype, shape or value; the message names it.
        """
        row, self._row, self.open = self._row, {}, False
        if self._some is not None:
            self._write_episodes(metrics)
            if self._some.between_chunks:
                self._first_at = now
            if self._present is not None:
                actions = actions[self._present]
                extras = {name: column[self._present] for name, column in extras.items()}
            self._version = version
            self._some.write(self._at, {**row, "action": actions, **extras}, version)
            return False
        row["action"] = actions.copy()
        if extras:
            row.update(extras)
        buffer = self._buffer
        if buffer.version != version:
            buffer.begin_version(version)
        if not buffer.rows:
            self._first_at = now
        buffer.write(row)
        if buffer.rows < buffer.length and not (
            metrics or self._cut_at_ends or self._episodes.waiting
        ):
            return False
        return self._cut_if_full(metrics)

    def write(self, row: Row, version: int) -> bool:
        """Writes a complete row of all streams in the middle of a chunk; False elsewhere.

        There it is :meth:`observe` and :meth:`act` in a third of their time.

        Args:
            row: the columns, which must not change afterwards.
            version: version of the parameters that chose the action.
        """
        buffer = self._buffer
        if not 0 < buffer.rows < buffer.length - 1:
            return False
        if buffer.version != version:
            buffer.begin_version(version)
        buffer.write(row)
        self._episodes.observe(row, _NO_INFO)
        self.first, self._last = self._last, row["terminated"]
        return True

    def close(self, *, now: float, metrics: Mapping[str, float]) -> bool:
        """Completes the newest row, at which every stream ends: no action is taken at it.

        Its action and extras are zero. Arguments, result and errors are those of :meth:`act`.
        """
        row, self._row, self.open = self._row, {}, False
        if not self._buffer.rows:
            self._first_at = now
        self._buffer.write_end(row)
        return self._cut_if_full(metrics)

    def _write_episodes(self, metrics: Mapping[str, float]) -> None:
        if self._episodes.waiting:
            self._episodes.write(metrics)

    # -- chunks are cut ---------------------------------------------------------------------------

    def _cut_if_full(self, metrics: Mapping[str, float]) -> bool:
        """Counts the episodes that ended at the row just written; cuts a chunk if it is time."""
        buffer = self._buffer
        if metrics:
            self._episodes.count()
        self._write_episodes(metrics)
        full = buffer.rows == buffer.length and not self._overlap
        if not full and not (self._cut_at_ends and self._last[0]):
            return False
        self._cut()
        return True

    def flush_due(self, now: float) -> bool:
        """Returns True if the rows of a short chunk have waited long enough."""
        seconds = self._flush_seconds
        return bool(seconds) and now - self._first_at >= seconds and not self.between_chunks

    def flush(self, metrics: Mapping[str, float]) -> None:
        """Cuts short chunks.

        A row of all streams that waits for its action, and the episodes that ended at it, are not
        in the chunk.

        Args:
            metrics: see :meth:`act`.
        """
        self._episodes.count()
        if self._some is not None:
            self._write_episodes(metrics)
            self._some.flush()
            return
        if not self._row:
            self._write_episodes(metrics)
        self._cut()

    def end(self, metrics: Mapping[str, float], *, final: bool = False) -> None:
        """Ends all streams: writes the newest rows, at which no action will be taken.

        Streams in the middle of an episode get new numbers.

        Args:
            metrics: see :meth:`act`.
            final: True if no row follows: what is left is cut into the last chunks.
        """
        self._episodes.count()
        row, self._row, self.open = self._row, {}, False
        if self._some is not None:
            self._write_episodes(metrics)
            self._some.end(self._at, row)
            self._streams = self._new_ids()
            return
        if not row:
            self._write_episodes(metrics)
        # Without a newest row the last step has failed: its action was not taken, and what follows
        # is no next row of an open episode.
        tail = not row and (final or not self._last.all())
        # If every stream has just begun, there is nothing to complete.
        if row and not self.first.all():
            self._buffer.write_end(row)
            self._episodes.write(metrics)
            tail = final or not self._last.all()
        full = self._buffer.rows == self._buffer.length
        if full or (self._buffer.rows and (final or tail)):
            self._cut(tail=tail)
        if tail:
            self._buffer.begin()
            self._streams = self._new_ids()

    def _cut(self, *, tail: bool = False) -> None:
        overlap, streams = self._buffer.overlap, self._streams.tolist()
        chunk = Chunk(self._buffer.cut(), 0, streams, tail=tail, overlap=overlap)
        first = chunk.columns["step_type"] == FIRST
        chunk.lead_in = self._lead_in.take(chunk.columns, first, chunk.length)
        self._finish(chunk, chunk.count_steps())

    def _send_part(self, part: StreamRows, tail: bool) -> None:
        columns, first = part.columns, part.columns.pop("first")
        steps = columns.pop("steps")
        columns = encode_ends(columns, first)
        self._buffer.checks.check(columns, first)
        overlap, streams = max(len(steps) - self._buffer.length, 0), self._streams[part.streams]
        chunk = Chunk(
            columns, 0, streams.tolist(), tail=tail, overlap=overlap, lead_in=part.lead_in
        )
        self._finish(chunk, int(steps[: chunk.length].sum()))

    def _finish(self, chunk: Chunk, env_steps: int) -> None:
        chunk.finished = self._episodes.take(chunk)
        chunk.env_steps = env_steps
        chunk.stamps = {"first": self._first_at}
        self._send(chunk)


def _leaves(rows: Rows) -> Row:
    obs: Nest = rows.obs
    parts = {"obs": obs} if type(obs) is np.ndarray else nest.flatten(obs, "obs")
    flags = {"terminated": rows.terminated, "truncated": rows.truncated, "first": rows.first}
    return {**parts, "reward": rows.reward, "steps": rows.steps, **flags}


def info_columns(info: Info) -> dict[str, Array]:
    """Returns the columns of the info of a vector step."""
    return {f"extras/{name}": info[name] for name in info.keys() - _NOT_COLUMNS}
