"""Slots of a gateway: the rows of the streams of its sessions.

A row is an observation, and the action taken at it. It is written when the next request of its slot
comes: until then the client may correct the action. A slot outlives its sessions: the rows of the
next one follow in the same stream and chunk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from session.config import Config
from session.nest import Array
from session.process.context import Context
from surreal_like.addons.gateway.messages import Request
from surreal_like.data.added_parts import policy_spec
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.data.frames import frame_spec, stack_size
from surreal_like.data.timestep import Flags
from surreal_like.env.masks import MaskGuard, make_guard
from surreal_like.errors import DataError
from surreal_like.experience.chunk_sender import ActorState, ExpSender
from surreal_like.experience.row_writer import RowWriter
from surreal_like.experiment.machine import env_row_parts
from surreal_like.replay.replay import load_replay_class

# Rewards are added up when a return is needed, or after this number of steps.
_ADD_UP = 256


class Advice(NamedTuple):
    """Answer of an agent to a batch of observations.

    Args:
        action: Actions ``[n, ...]``, of the dtype of the spec.
        extras: Map from a column to its values ``[n, ...]``.
        version: Version of the parameters.
    """

    action: Array
    extras: Mapping[str, Array]
    version: int


class Slot:
    """Rows of one session after the other.

    Args:
        writer: Writer of its streams; None: rows are not recorded.
        num_envs: Number of streams, N.
        acting: State of the agent, for the metrics of episodes.
        now: Function that returns the time in seconds.
        masks: Checks the actions that clients correct; None without masks.

    Attributes:
        muted: True while rows are not recorded, because replay takes none.
        first: True where an episode begins at the newest observation, bool ``[N]``.
        returns, lengths: Returns and lengths of the open episodes, ``[N]``.
        metrics: Newest number of each name that the client has sent in the newest episode.
    """

    def __init__(
        self,
        writer: RowWriter | None,
        num_envs: int,
        acting: ActorState,
        now: Callable[[], float],
        masks: MaskGuard | None = None,
    ) -> None:
        self.writer, self._masks = writer, masks
        self._acting, self._now = acting, now
        self._num_envs = num_envs
        self._request: Request | None = None
        self._advice: Advice | None = None
        self._rows = slice(0, num_envs)
        self._rewards: list[Array] = []
        self._begun = False
        self.muted = False
        self.first: Flags = np.ones(num_envs, np.bool_)
        self.returns = np.zeros(num_envs)
        self.lengths = np.zeros(num_envs, np.int64)
        self.metrics: dict[str, float] = {}

    def list_ended(self) -> list[dict[str, Any]]:
        """Returns ``stream``, ``return`` and ``length`` of the episodes that ended just now."""
        request = self._request
        if request is None:
            return []
        self._add_up()
        return [
            {
                "stream": int(stream),
                "return": float(self.returns[stream]),
                "length": int(self.lengths[stream]),
            }
            for stream in np.flatnonzero(request.terminated | request.truncated)
        ]

    def begin(self, request: Request) -> None:
        """Begins an episode in every stream; the one before has ended or was cut."""
        self.muted = False
        self._request, self._advice = request, None
        self.first = np.ones(self._num_envs, np.bool_)
        self.returns = np.zeros(self._num_envs)
        self.lengths = np.zeros(self._num_envs, np.int64)
        self.metrics = {}
        self._rewards.clear()

    def advise(self, advice: Advice, start: int = 0) -> None:
        """Sets the answer to the newest observation.

        Args:
            advice: Answer to a batch.
            start: Row of the first stream in the batch.
        """
        self._advice, self._rows = advice, slice(start, start + self._num_envs)

    def check(self, request: Request) -> None:
        """Checks a corrected action, and a step of several streams, against the step before.

        Raises:
            DataError: the action is masked; an episode that has just begun has a reward, or ends.
        """
        before = self._request
        if self._masks is not None and before is not None and request.action is not None:
            ended = before.terminated | before.truncated
            self._masks.observe(before.obs, ended)
            self._masks.check(request.action, ended)
        if self._num_envs == 1 or before is None:
            return
        begins = before.terminated | before.truncated
        if np.count_nonzero(request.reward[begins]):
            raise DataError("reward: not 0 where an episode begins: no action came before")
        if np.count_nonzero((request.terminated | request.truncated)[begins]):
            raise DataError("terminated or truncated: true where an episode begins")

    def mute(self) -> bool:
        """Cuts the rows here, while the episode goes on for the client; as :meth:`cut`."""
        request = self._request
        has_rows = self.cut()
        self.muted, self._request = True, request
        return has_rows

    def step(self, request: Request, *, has_room: bool = True) -> None:
        """Writes the row before, and keeps the new observation.

        Args:
            request: Newest request.
            has_room: False keeps a muted slot so; otherwise its rows begin again here.
        """
        before = self._write_row(request)
        self._add_metrics(request)
        # Only `end` ends the episode of a single stream.
        ended = before.terminated
        if self._num_envs > 1:
            ended = ended | before.truncated
            self._add_up()
            self.returns[ended], self.lengths[ended] = 0.0, -1
        self._rewards.append(request.reward)
        if len(self._rewards) >= _ADD_UP:
            self._add_up()
        self.first = ended
        if self.muted and has_room:
            self.muted, self.first = False, np.ones(self._num_envs, np.bool_)
            no = np.zeros(self._num_envs, np.bool_)
            reward = np.zeros(self._num_envs, np.float32)
            request = request._replace(kind="reset", reward=reward, terminated=no, truncated=no)
        self._request, self._advice = request, None

    def end(self, request: Request) -> EpisodeSummary:
        """Writes the row before, and the last one of the episode; returns its summary."""
        before = self._write_row(request)
        self._add_metrics(request)
        obs = before.obs if request.obs is None else request.obs
        self._close(request._replace(obs=obs))
        self._rewards.append(request.reward)
        self._add_up()
        self._request = self._advice = None
        return {"return": float(self.returns[0]), "length": int(self.lengths[0])}

    def _add_metrics(self, request: Request) -> None:
        if request.info:
            self.metrics |= request.info["metrics"][0]

    def _add_up(self) -> None:
        """Adds the rewards since the last call to the returns of the open episodes."""
        if self._rewards:
            self.returns += np.add.reduce(self._rewards, axis=0, dtype=np.float64)
            self.lengths += len(self._rewards)
            self._rewards.clear()

    def cut(self) -> bool:
        """Ends the open episode, as a truncation that is no episode of its own.

        Returns:
            True if rows of it are recorded; not so if only its first observation has come.
        """
        request, self._request, self._advice = self._request, None, None
        if request is None or request.kind == "reset" or self.muted:
            return False
        if self._num_envs > 1:
            if self.writer is not None:
                self._observe(self.writer, request)
                self.writer.end(self._acting.metrics)
                self._begun = False
        else:
            yes = np.ones(self._num_envs, np.bool_)
            self._close(request._replace(truncated=yes), counted=False)
        return self.writer is not None

    def _write_row(self, request: Request) -> Request:
        before, advice, writer = self._request, self._advice, self.writer
        assert before is not None  # an episode is open
        assert advice is not None  # the session has answered
        if writer is None or self.muted:
            return before
        rows, extras = self._rows, advice.extras
        # Copied, because a view would keep the arrays of the whole batch.
        action = advice.action[rows].copy() if request.action is None else request.action
        if extras:
            extras = {name: leaf[rows].copy() for name, leaf in extras.items()}
        _, _, obs, reward, terminated, truncated, _, info = before
        if self._num_envs == 1 and not info and before.kind == "step" and type(obs) is np.ndarray:
            row = {
                "obs": obs,
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
                "action": action,
                **extras,
            }
            if writer.write(row, advice.version):
                return before
        self._observe(writer, before)
        writer.act(
            action,
            extras,
            version=advice.version,
            now=self._now(),
            metrics=self._acting.metrics,
        )
        return before

    def _close(self, request: Request, *, counted: bool = True) -> None:
        if self.writer is not None and not self.muted:
            self._observe(self.writer, request, counted=counted)
            self.writer.close(now=self._now(), metrics=self._acting.metrics)

    def _observe(self, writer: RowWriter, request: Request, *, counted: bool = True) -> None:
        if not self._begun:
            self._begun = True
            writer.begin(request.obs, request.info)
            return
        writer.observe(
            request.obs,
            request.reward,
            request.terminated,
            request.truncated,
            request.info,
            counted=counted,
        )

    def finish(self) -> None:
        """Sends all rows; the open episode was cut before."""
        if self.writer is not None:
            self.writer.end(self._acting.metrics, final=True)

    def flush(self, now: float) -> None:
        """Sends the rows of a chunk that has waited long enough."""
        if self.writer is not None and self.writer.flush_due(now):
            self.writer.flush(self._acting.metrics)


class Rows:
    """Slots of sessions whose rows go nowhere; base of :class:`Recorder`.

    Args:
        config: Config of the run.
        acting: State of the agent, for the metrics of episodes.
        now: Function that returns the time in seconds.

    Attributes:
        num_envs: Number of streams of a session, N.
        overlap: Overlap of the replay's class; 1: whole unrolls.
        frame_spec: Observation spec of one frame.
        learned: True if a learner gets the rows, so that their values need bounds.
    """

    overlap, learned = 0, False

    def __init__(self, config: Config, acting: ActorState, now: Callable[[], float]) -> None:
        self._config, self._acting, self._now = config, acting, now
        self.num_envs: int = config.session_config.gateway.num_envs
        obs_spec = policy_spec(config.env_config.obs_spec)
        self.frame_spec = frame_spec(obs_spec, stack_size(config.env_config))
        self._masks = make_guard(self.frame_spec, config.env_config.action_spec)

    @property
    def has_room(self) -> bool:
        """True while more rows may be written."""
        return True

    @property
    def slot_bytes(self) -> int:
        """Memory of one more slot."""
        return 0

    def make_slot(self, place: int, mode: str) -> Slot:
        """Returns the slot of a session.

        Args:
            place: Place of the session.
            mode: Mode of the session.
        """
        return Slot(None, self.num_envs, self._acting, self._now, self._masks)


class Recorder(Rows):
    """Makes the slots of sessions, and sends their rows.

    Args:
        context: Context of this process.

    Attributes:
        sender: the sender of all chunks.
    """

    learned = True

    def __init__(self, context: Context) -> None:
        config = context.config
        self.sender = ExpSender(context, config.session_config.sender)
        super().__init__(config, self.sender.acting, context.clock.now)
        self.overlap = load_replay_class(config.learner_config).overlap
        self._window_chunks: int = config.session_config.sender.max_unacked_chunks
        self._ids = itertools.count()
        self._slots: dict[int, Slot] = {}

    @property
    def has_room(self) -> bool:
        """True while more rows may be written; otherwise too much is unacked."""
        return self.sender.window.ready

    @property
    def slot_bytes(self) -> int:
        """Memory of one more slot: the rows of a chunk, and of a stack."""
        config = self._config
        rows = config.session_config.sender.flush_iteration + 1 + stack_size(config.env_config)
        return int(rows * sum(env_row_parts(config).values()) * self.num_envs)

    def make_slot(self, place: int, mode: str) -> Slot:
        """Returns the slot of a session; that of its place, whose stream goes on, in mode train."""
        if mode != "train":
            return super().make_slot(place, mode)
        slot = self._slots.get(place)
        if slot is None:
            writer = self._make_writer()
            slot = Slot(writer, self.num_envs, self._acting, self._now, self._masks)
            self._slots[place] = slot
        return slot

    def _make_writer(self) -> RowWriter:
        env = self._config.env_config
        writer = RowWriter(
            self.num_envs,
            obs_spec=self.frame_spec,
            action_spec=env.action_spec,
            settings=self._config.session_config.sender,
            overlap=self.overlap,
            send=self.sender.send,
            ids=self._ids,
        )
        writer.keep_frames(stack_size(env) - 1)
        return writer

    def flush(self, now: float, sessions: int) -> None:
        """Sends chunks that have waited long enough; the window grows with the sessions."""
        # All of them may cut a chunk at once.
        self.sender.window.max_chunks = self._window_chunks * max(1, sessions)
        for slot in self._slots.values():
            slot.flush(now)

    def finish(self) -> None:
        """Sends all rows and the goodbye."""
        for slot in self._slots.values():
            slot.finish()
        self.sender.send_goodbye()

    def pop_recent(self) -> list[EpisodeSummary]:
        """Returns summaries of the episodes that ended since the last call."""
        writers = [slot.writer for slot in self._slots.values() if slot.writer is not None]
        return [each for writer in writers for each in writer.pop_recent()]
