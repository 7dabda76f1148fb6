"""Wrapper that sends all experience of an environment to replay."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from session.config.sections import complete_session
from session.errors import DeadlineError, RefusedError, UsageError
from session.nest import Nest
from session.process.context import Context
from session.wire.socket_state import poll
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.data.frames import stack_size
from surreal_like.data.timestep import Flags
from surreal_like.env.environment import Env, Info, VectorEnv, VectorStep, VectorWrapper
from surreal_like.env.vector import as_vector
from surreal_like.experience.chunk_sender import ExpSender
from surreal_like.experience.row_sender import RowSender
from surreal_like.ps.schemas import ANSWERS
from surreal_like.replay.replay import load_replay_class
from surreal_like.replay.settings import is_aligned

_POLL_SECONDS = 0.02
_FULL_SECONDS = 120.0
_LEAVE_SECONDS = 3.0


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
        if not is_aligned(learner_config or {}):
            self.env.leave_out()
        self._in_script = context is None
        self._rows = RowSender(
            self.num_envs,
            obs_spec=self.obs_spec,
            action_spec=self.action_spec,
            settings=self._session.sender,
            overlap=overlap,
            resets_in_step=self.resets_in_step,
            in_script=self._in_script,
        )
        self._writer = self._rows.writer
        self._sender = None if context is None else self._make_sender(context)

    @property
    def sender(self) -> ExpSender:
        """The sender of the chunks."""
        return self._connect()

    @property
    def ready(self) -> bool:
        """True while another step may be taken; otherwise too many chunks are unacked."""
        return self._connect().window.ready

    @property
    def first(self) -> Flags:
        """True where an episode begins at the newest row, bool ``[N]``."""
        return self._writer.first

    @property
    def finished(self) -> list[EpisodeSummary]:
        """Summaries of the episodes that the newest step ended."""
        return self._writer.finished

    def pop_recent(self) -> list[EpisodeSummary]:
        """Returns summaries of episodes that ended since the last call, at most the newest 1000."""
        return self._writer.pop_recent()

    def reset(self) -> tuple[Nest, Info]:
        """Resets all streams; those in the middle of an episode are cut and get new numbers."""
        self._connect()
        self._rows.end()
        obs, info = self.env.reset()
        self._writer.begin(obs, info)
        return obs, info

    def step(self, actions: Any) -> VectorStep:
        """Writes the row at which the actions were taken, and steps.

        Raises:
            DataError: a field is NaN or has a wrong dtype, shape or value; the message names it.
            DeadlineError: in a script: replay has acked nothing for too long.
        """
        rows = self._rows
        if self._sender is None or not rows.writer.open:
            raise UsageError("step() without reset(): an episode begins with reset()")
        if self._in_script:
            self._wait_until_ready()
        actions = rows.act(actions)
        step = rows.time(self.env.step, actions) if rows.traced else self.env.step(actions)
        rows.writer.observe(*step)
        return step

    def finish(self) -> None:
        """Ends all streams: sends all rows, the last observations included, then the goodbye."""
        self._connect()
        self._rows.finish()

    def pump(self) -> None:
        """Reads acks, sends what can be sent, and cuts a chunk that has waited long enough.

        May be called while the environments step.
        """
        self._connect()
        self._rows.pump()

    def close(self) -> None:
        """Closes the environment; in a script first sends all rows, with a deadline for acks."""
        if self._in_script and self._sender is not None:
            self.finish()
            _leave(self._sender)
            self._sender = None
        super().close()

    def _connect(self) -> ExpSender:
        if self._sender is None:
            from session.process.script import at_leave, script_context

            self._sender = self._make_sender(script_context(self._session, "agent"))
            at_leave(self.close)
        return self._sender

    def _make_sender(self, context: Context) -> ExpSender:
        self._writer.keep_frames(stack_size(context.config.env_config) - 1)
        self._rows.sender = ExpSender(context, self._session.sender)
        return self._rows.sender

    def _wait_until_ready(self) -> None:
        sender = self._connect()
        deadline = sender.now() + _FULL_SECONDS
        while not self.ready and not sender.context.stopping:
            if sender.now() >= deadline:
                raise DeadlineError(
                    f"replay has not confirmed {sender.window.unacked} rows for "
                    f"{_FULL_SECONDS:g} s: is it running, and does the learner use its rows?"
                )
            poll([sender.socket], _POLL_SECONDS)
            self.pump()


def _leave(sender: ExpSender) -> None:
    """Waits for the last acks and reports the final account, both with a deadline."""
    deadline = sender.now() + _LEAVE_SECONDS
    while not sender.window.empty and sender.now() < deadline:
        sender.pump()
        poll([sender.socket], _POLL_SECONDS)
    ps = sender.context.wire.dealer("ps.requests", ANSWERS)
    fields = {"policy": sender.policy, "account": sender.account()}
    with suppress(DeadlineError, RefusedError):
        ps.request("leave", fields, timeout_seconds=1.0)
