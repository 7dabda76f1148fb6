"""Writes the rows of a policy, and sends the chunks when it is time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from session.config import Config
from session.nest import Array
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.chunk_sender import ExpSender
from surreal_like.experience.row_writer import RowWriter

# A chunk that could not be sent yet is tried soon; acks of chunks that were sent can wait.
_SEND_SECONDS = 0.01
_ACKS_SECONDS = 0.5

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


class RowSender:
    """A :class:`RowWriter` with the sender of its chunks.

    Args:
        num_streams, obs_spec, action_spec: streams and their specs, see :class:`RowWriter`.
        settings, overlap, resets_in_step: how rows are cut, see :class:`RowWriter`.
        in_script: True sends whenever it may: a script has nothing else that would.

    Attributes:
        writer: the writer.
        sender: sender of the chunks; set once there is a context.
        traced: True while the time in the environments is measured, for a chunk that is traced.
    """

    sender: ExpSender

    def __init__(
        self,
        num_streams: int,
        *,
        obs_spec: Mapping[str, Any],
        action_spec: Mapping[str, Any],
        settings: Config,
        overlap: int,
        resets_in_step: bool = False,
        in_script: bool = False,
    ) -> None:
        self.writer = RowWriter(
            num_streams,
            obs_spec=obs_spec,
            action_spec=action_spec,
            settings=settings,
            overlap=overlap,
            send=self._send,
            resets_in_step=resets_in_step,
        )
        self.traced = False
        self._in_script = in_script
        self._pump_at = self._acks_at = 0.0
        # Time in the environments since the first row of a chunk that is traced.
        self._stepping_seconds = 0.0

    def act(self, answer: Any) -> Array:
        """Completes the newest rows, and sends what is due.

        Args:
            answer: what the agent's ``act`` returned.

        Returns:
            The actions.

        Raises:
            DataError: a field is NaN or has a wrong dtype, shape or value; the message names it.
        """
        writer, sender = self.writer, self.sender
        actions, extras = writer.unpack(answer)
        now, acting = sender.now(), sender.acting
        version, metrics = acting.version, acting.metrics
        cut = writer.act(actions, extras, version=version, now=now, metrics=metrics)
        if not cut and now >= self._pump_at:
            self.pump_if_due()
        return actions

    def pump_if_due(self) -> None:
        """Sends and reads what is due; for a step in which no row is written."""
        now = self.sender.now()
        if now < self._pump_at:
            return
        window = self.sender.window
        unsent = self._in_script or window.next_to_send() is not None
        acks_due = now >= self._acks_at and not window.empty
        if unsent or acks_due or self.writer.flush_due(now):
            self._acks_at = now + _ACKS_SECONDS
            self.pump()
        self._pump_at = now + _SEND_SECONDS

    def time(self, step: Callable[[_Given], _Result], actions: _Given) -> _Result:
        """Steps environments while :attr:`traced`; returns what the step returns."""
        began = self.sender.now()
        result = step(actions)
        self._stepping_seconds += self.sender.now() - began
        return result

    def pump(self) -> None:
        """Reads acks, sends what can be sent, and cuts chunks that have waited long enough.

        May be called while the environments step.
        """
        if self.writer.flush_due(self.sender.now()):
            self.flush()
        self.sender.pump()
        if self._in_script:
            self.sender.context.pulse()

    def flush(self) -> None:
        """Cuts short chunks of the rows whose actions have been taken, if there are any."""
        if not self.writer.between_chunks:
            self.writer.flush(self.sender.acting.metrics)

    def end(self) -> None:
        """Ends all streams; those in the middle of an episode are cut and get new numbers."""
        self.writer.end(self.sender.acting.metrics)

    def finish(self) -> None:
        """Ends all streams: sends all rows, the last observations included, then the goodbye."""
        self.writer.end(self.sender.acting.metrics, final=True)
        self.sender.send_goodbye()

    def _send(self, chunk: Chunk) -> None:
        if self.traced:
            chunk.stamps["stepped"] = chunk.stamps["first"] + self._stepping_seconds
        self.sender.send(chunk)
        self.traced, self._stepping_seconds = self.sender.traces_next, 0.0
