"""The writer of chunks of N streams of a VectorEnv that may differ in their number of rows.

Where an environment resets within its step, the end of an episode gives two rows: LAST of the old
episode and FIRST of the new one. A stream that is made anew has no row for a while. So each stream
has its own number of rows, which a :class:`StreamWriter` cuts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from session.config import Config
from session.errors import ConfigError
from session.nest import Array, Nest
from surreal_like.data.episodes import EpisodeCounter, EpisodeSummary
from surreal_like.env.base import Info
from surreal_like.env.joint_vector import Rows
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.chunk_episodes import RECENT, Flags
from surreal_like.experience.stream_writer import StreamWriter
from surreal_like.experience.writer import info_columns


class InStepWriter:
    """Does for a VectorEnv with `resets_in_step`, or that leaves out streams, what
    :class:`ChunkWriter` does for others.

    Arguments, attributes and methods are those of :class:`ChunkWriter`, and

    Args:
        in_step: True if the environment resets within its step.
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
        in_step: bool = True,
    ) -> None:
        if settings.cut == "episodes" and in_step:
            raise ConfigError(
                "session_config.sender.cut is episodes, but the environment resets within its "
                "step, so that a chunk has rows of two episodes: write steps"
            )
        self._writer = StreamWriter(
            num_streams,
            obs_spec=obs_spec,
            action_spec=action_spec,
            settings=settings,
            overlap=overlap,
            send=send,
            # As many unrolls as replay expects of an agent.
            group=num_streams if overlap else 0,
        )
        self.unpack, self.flush_due = self._writer.unpack, self._writer.flush_due
        self.keep_frames = self._writer.keep_frames
        self._in_step = in_step
        self._counter = EpisodeCounter(num_streams)
        self._streams = np.arange(num_streams)
        self._none = np.zeros(num_streams, np.bool_)
        # Streams that have ended, and those that have a row now; None: all.
        self._last: Flags = self._none
        self._present: Flags | None = None
        self._version = 0
        # Episodes that wait for the metrics of the agent.
        self._ended: list[EpisodeSummary] = []
        self._recent: deque[EpisodeSummary] = deque(maxlen=RECENT)
        self.finished: list[EpisodeSummary] = []
        self.first: Flags = np.ones(num_streams, np.bool_)
        self.open = False

    @property
    def between_chunks(self) -> bool:
        """True while no row waits to be sent."""
        return self._writer.between_chunks

    @property
    def num_finished(self) -> int:
        """Number of episodes that ended at the newest step."""
        return len(self.finished)

    def pop_recent(self) -> list[EpisodeSummary]:
        """Returns summaries of episodes that ended since the last call, at most the newest 1000."""
        recent = list(self._recent)
        self._recent.clear()
        return recent

    def begin(self, obs: Nest, info: Info) -> None:
        """Begins an episode in every stream."""
        self._counter.reset()
        zeros, no = np.zeros(len(self._streams), np.float32), self._none
        self._last = no
        self._observe(obs, zeros, (no, no, ~no), info)

    def observe(
        self, obs: Nest, reward: Array, terminated: Flags, truncated: Flags, info: Info
    ) -> None:
        """Writes the last rows of episodes that ended, and begins a row of every stream."""
        last = terminated | truncated
        self.finished = self._counter.update(
            info.get("raw_reward", reward),
            last,
            info.get("metrics"),
            info.get("life_lost"),
            begun=self._in_step,
            absent=info.get("absent_streams"),
        )
        self._ended += self.finished
        self._recent += self.finished
        if "final_obs" in info:
            streams = last.nonzero()[0]
            rows = Rows(
                streams,
                info["final_obs"],
                reward[streams],
                terminated[streams],
                truncated[streams],
                self._none[streams],
                np.ones(len(streams), np.int64),
            )
            final = info_columns(info["final_info"])
            self._writer.write_last(rows, final, version=self._version)
            reward = np.where(last, np.float32(0.0), reward)
        no = self._none
        flags = (no, no, last) if self._in_step else (terminated, truncated, self._last)
        self._last = last
        self._observe(obs, reward, flags, info)

    def _observe(
        self, obs: Nest, reward: Array, flags: tuple[Flags, Flags, Flags], info: Info
    ) -> None:
        first, columns = flags[2], info_columns(info)
        rows = Rows(self._streams, obs, reward, *flags, (~first).astype(np.int64))
        self._present = None
        if "absent_streams" in info:
            self._present = ~info["absent_streams"]
            rows = rows.select(self._present)
            columns = {name: column[self._present] for name, column in columns.items()}
        self._writer.observe(rows, [], columns)
        self.first, self.open = first, True

    def act(
        self,
        actions: Array,
        extras: Mapping[str, Array],
        *,
        version: int,
        now: float,
        metrics: Mapping[str, float],
    ) -> bool:
        """Completes the newest rows, and cuts the streams that are full."""
        self._version = version
        self._add_episodes(metrics)
        if self._present is not None:
            actions = actions[self._present]
            extras = {name: column[self._present] for name, column in extras.items()}
        self._writer.act(actions, extras, version=version, now=now)
        return False

    def flush(self, metrics: Mapping[str, float]) -> None:
        """Cuts all rows whose actions have been taken."""
        self._add_episodes(metrics)
        self._writer.flush()

    def end(self, metrics: Mapping[str, float], *, final: bool = False) -> None:
        """Ends all streams: writes the newest rows, at which no action will be taken."""
        self._add_episodes(metrics)
        self._writer.end()

    def _add_episodes(self, metrics: Mapping[str, float]) -> None:
        if self._ended:
            own = [{**each, "metrics": {**metrics, **each["metrics"]}} for each in self._ended]
            self._writer.add_episodes(own)
            self._ended.clear()
