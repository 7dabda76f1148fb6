"""The rows of all sessions of a gateway: slots that share one sender."""

from __future__ import annotations

import itertools
from typing import Any, Protocol

from session.process.context import Context
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.data.frames import frame_spec, stack_size
from surreal_like.experience.sender import ExpSender, SenderLink
from surreal_like.experience.writer import ChunkWriter
from surreal_like.experiment.machine import env_row_parts
from surreal_like.gateway.slots import Slot
from surreal_like.replay.base import load_replay_class


class Rows(Protocol):
    """The rows of a gateway's sessions.

    Attributes:
        num_envs: N, streams of a session.
        overlap: of the replay's class; 1: whole unrolls.
        frame_spec: observation spec of one frame.
        learned: True: a learner gets them, so their values need bounds.
    """

    learned: bool
    num_envs: int
    overlap: int
    frame_spec: dict[str, Any]

    @property
    def has_room(self) -> bool:
        """True while more rows may be written."""

    @property
    def slot_bytes(self) -> int:
        """Memory of one more slot."""

    def slot(self, number: int, *, recorded: bool) -> Slot:
        """Returns the slot of a session."""


class Recorder:
    """Makes the slots of sessions, and sends their rows.

    Args:
        context: of this process.

    Attributes:
        learned, num_envs, overlap, frame_spec: as in :class:`Rows`.
    """

    learned = True

    def __init__(self, context: Context) -> None:
        config = context.config
        self.overlap: int = load_replay_class(config.learner_config).overlap
        self.frame_spec = frame_spec(config.env_config.obs_spec, stack_size(config.env_config))
        self._config, self._now = config, context.clock.now
        self.num_envs: int = config.session_config.gateway.num_envs
        self._link = SenderLink(context, config.session_config.sender)
        self._window_chunks: int = config.session_config.sender.max_unacked_chunks
        self._ids = itertools.count()
        self._slots: dict[int, Slot] = {}

    @property
    def sender(self) -> ExpSender:
        """The sender of all chunks."""
        return self._link.sender

    @property
    def has_room(self) -> bool:
        """True while more rows may be written; otherwise too much is unacked."""
        return self._link.sender.window.ready

    @property
    def slot_bytes(self) -> int:
        """Memory of one more slot: the rows of a chunk, and of a stack."""
        config = self._config
        rows = config.session_config.sender.flush_iteration + 1 + stack_size(config.env_config)
        return int(rows * sum(env_row_parts(config).values()) * self.num_envs)

    def slot(self, number: int, *, recorded: bool) -> Slot:
        """Returns the slot of a session.

        Args:
            number: of its place. The rows of its next session follow in the same stream.
            recorded: False: a slot of its own, whose rows go nowhere.
        """
        if not recorded:
            return Slot(None, self.num_envs, self._link.acting, self._now)
        slot = self._slots.get(number)
        if slot is None:
            slot = Slot(self._writer(), self.num_envs, self._link.acting, self._now)
            self._slots[number] = slot
        return slot

    def _writer(self) -> ChunkWriter:
        env = self._config.env_config
        writer = ChunkWriter(
            self.num_envs,
            obs_spec=self.frame_spec,
            action_spec=env.action_spec,
            settings=self._config.session_config.sender,
            overlap=self.overlap,
            send=self._link.sender.send,
            ids=self._ids,
        )
        writer.keep_frames(stack_size(env) - 1)
        return writer

    def flush(self, now: float, sessions: int) -> None:
        """Sends chunks that have waited long enough; the window grows with the sessions."""
        # All of them may cut a chunk at once.
        self._link.sender.window.max_chunks = self._window_chunks * max(1, sessions)
        for slot in self._slots.values():
            slot.flush(now)

    def finish(self) -> None:
        """Sends all rows and the goodbye."""
        for slot in self._slots.values():
            slot.finish()
        self._link.sender.send_goodbye()

    def pop_recent(self) -> list[EpisodeSummary]:
        """Returns summaries of the episodes that ended since the last call."""
        writers = [slot.writer for slot in self._slots.values() if slot.writer is not None]
        return [each for writer in writers for each in writer.pop_recent()]
