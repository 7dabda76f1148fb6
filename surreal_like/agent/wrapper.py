"""Wrapper that sends all experience of an environment to replay."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from session.config.sections import complete_session
from session.errors import DeadlineError, UsageError
from session.nest import Nest
from session.process.context import Context
from session.wire.shared import poll
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.data.frames import stack_size
from surreal_like.env.base import Env, Info, VectorEnv, VectorStep, VectorWrapper
from surreal_like.env.vector import as_vector
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.chunk_episodes import Flags
from surreal_like.experience.in_step_writer import InStepWriter
from surreal_like.experience.sender import ExpSender, SenderLink
from surreal_like.experience.writer import ChunkWriter
from surreal_like.replay.base import load_replay_class

# A chunk that could not be sent yet is tried soon; acks of chunks that were sent can wait.
_SEND_SECONDS = 0.01
_ACKS_SECONDS = 0.5
_POLL_SECONDS = 0.02
_FULL_SECONDS = 120.0


class ExpSenderWrapper(VectorWrapper):
    """Sends all experience of an environment to replay, in chunks.

    It is a VectorEnv of N streams, also around a single Env. ``step`` takes what ``act``
    returned: actions, or ``(actions, extras)``; extras, a nest of arrays ``[N, ...]``, become
    columns and do not reach the environment. The keys of ``env_config.info_keys`` become columns
    beside them.

    Args:
        env: an Env (N = 1) or a VectorEnv.
        learner_config: the replay defines whether chunks are whole unrolls; left out: they are not.
        session_config: the section ``sender`` has the settings for cutting and keeping chunks.
        context: context of this process. A script leaves it out: then the first ``reset`` connects,
            and ``step`` waits while too many rows are unacked.

    Raises:
        ConfigError: a key of ``session_config`` is unknown; or ``sender.cut`` is ``episodes``, but
            there are several streams.
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
        self._session = complete_session(session_config or {})
        if learner_config is None and context is not None:
            learner_config = context.config.learner_config
        overlap = 0 if learner_config is None else load_replay_class(learner_config).overlap
        kind: Any = InStepWriter if self.resets_in_step else ChunkWriter
        if not _is_aligned(learner_config or {}) and self.env.leave_out():
            kind = partial(InStepWriter, in_step=False)
        self._writer: ChunkWriter | InStepWriter = kind(
            self.num_envs,
            obs_spec=self.obs_spec,
            action_spec=self.action_spec,
            settings=self._session.sender,
            overlap=overlap,
            send=self._send,
        )
        self._pump_at = self._acks_at = 0.0
        # Time in the environments since the first row of a chunk that is traced.
        self._traced, self._stepping_seconds = False, 0.0
        self._in_script = context is None
        self._link = None if context is None else self._linked(context)

    @property
    def sender(self) -> ExpSender:
        """The sender of the chunks."""
        return self._connect().sender

    @property
    def ready(self) -> bool:
        """True while another step may be taken; otherwise too many chunks are unacked."""
        return self._connect().sender.window.ready

    @property
    def between_chunks(self) -> bool:
        """True while no action of the next chunk has been taken."""
        return self._writer.between_chunks

    @property
    def first(self) -> Flags:
        """True where an episode begins at the newest row, bool ``[N]``."""
        return self._writer.first

    @property
    def finished(self) -> list[EpisodeSummary]:
        """Summaries of the episodes that the newest step ended."""
        return self._writer.finished

    @property
    def num_finished(self) -> int:
        """Number of episodes that the newest step ended; cheaper than their summaries."""
        return self._writer.num_finished

    def pop_recent(self) -> list[EpisodeSummary]:
        """Returns summaries of episodes that ended since the last call, at most the newest 1000."""
        return self._writer.pop_recent()

    def reset(self) -> tuple[Nest, Info]:
        """Resets all streams; those in the middle of an episode are cut and get new numbers."""
        self._writer.end(self._connect().acting.metrics)
        obs, info = self.env.reset()
        self._writer.begin(obs, info)
        return obs, info

    def step(self, actions: Any) -> VectorStep:
        """Writes the row at which the actions were taken, and steps.

        Raises:
            DataError: a field is NaN or has a wrong dtype, shape or value; the message names it.
            DeadlineError: in a script: replay has acked nothing for too long.
        """
        writer, link = self._writer, self._link
        if link is None or not writer.open:
            raise UsageError("step() without reset(): an episode begins with reset()")
        if self._in_script:
            self._wait_until_ready()
        actions, extras = writer.unpack(actions)
        now, acting = link.now(), link.acting
        cut = writer.act(
            actions,
            extras,
            version=acting.version,
            now=now,
            metrics=acting.metrics,
        )
        if not cut and now >= self._pump_at:
            window = link.sender.window
            unsent = self._in_script or window.next_to_send() is not None
            acks_due = now >= self._acks_at and not window.empty
            if unsent or acks_due or writer.flush_due(now):
                self._acks_at = now + _ACKS_SECONDS
                self.pump()
            self._pump_at = now + _SEND_SECONDS
        if self._traced:
            began = link.now()
            step = self.env.step(actions)
            self._stepping_seconds += link.now() - began
        else:
            step = self.env.step(actions)
        writer.observe(*step)
        return step

    def finish(self) -> None:
        """Ends all streams: sends all rows, the last observations included, then the goodbye."""
        self._writer.end(self._connect().acting.metrics, final=True)
        self.sender.send_goodbye()

    def pump(self) -> None:
        """Reads acks, sends what can be sent, and cuts a chunk that has waited long enough.

        May be called while the environments step.
        """
        link = self._connect()
        if self._writer.flush_due(link.now()):
            self.flush()
        link.sender.pump()
        if self._in_script:
            link.context.pulse()

    def flush(self) -> None:
        """Cuts a short chunk of the rows whose actions have been taken, if there are any."""
        if not self._writer.between_chunks:
            self._writer.flush(self._connect().acting.metrics)

    def close(self) -> None:
        """Closes the environment; in a script first sends all rows, with a deadline for acks."""
        if self._in_script and self._link is not None:
            self.finish()
            self._link.leave()
            self._link = None
        super().close()

    def _send(self, chunk: Chunk) -> None:
        if self._traced:
            chunk.stamps["stepped"] = chunk.stamps["first"] + self._stepping_seconds
        self.sender.send(chunk)
        self._traced, self._stepping_seconds = self.sender.traces_next, 0.0

    def _connect(self) -> SenderLink:
        if self._link is None:
            from session.process.script import at_leave, script_context

            self._link = self._linked(script_context(self._session, "agent"))
            at_leave(self.close)
        return self._link

    def _linked(self, context: Context) -> SenderLink:
        self._writer.keep_frames(stack_size(context.config.env_config) - 1)
        return SenderLink(context, self._session.sender)

    def _wait_until_ready(self) -> None:
        link = self._connect()
        deadline = link.now() + _FULL_SECONDS
        while not self.ready and not link.context.stopping:
            if link.now() >= deadline:
                raise DeadlineError(
                    f"replay has not confirmed {link.sender.window.unacked} rows for "
                    f"{_FULL_SECONDS:g} s: is it running, and does the learner use its rows?"
                )
            poll([link.sender.socket], _POLL_SECONDS)
            self.pump()


def _is_aligned(learner_config: Mapping[str, Any]) -> bool:
    """Returns True if the unrolls of all streams have to begin at the same step."""
    synchronous = (learner_config.get("algo") or {}).get("synchronous")
    return bool(synchronous) or learner_config.get("gradients_at") == "agent"
