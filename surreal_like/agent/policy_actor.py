"""A policy in an agent process: it acts, and sends the experience of its streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.nest import Nest
from session.process.context import Context
from surreal_like.agent.acting import Acting, Flags, Indices, Rewards
from surreal_like.agent.agent import Agent
from surreal_like.agent.sending import Sending
from surreal_like.agent.synchronous import Synchronous
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.data.frames import stack_size
from surreal_like.data.parameters import Parameters
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.data.rows import Rows
from surreal_like.env.environment import Info, VectorStep
from surreal_like.env.frame_stack import FrameStacks
from surreal_like.env.task_feed import TaskFeed
from surreal_like.experience.chunk_sender import ExpSender
from surreal_like.experience.row_sender import RowSender
from surreal_like.replay.replay import load_replay_class


class PolicyActor(Sending):
    """Acts with a policy that learns, and sends the experience of its streams.

    Args:
        context: context of this process.
        agent: agent of the policy; not yet attached.
        policy: name of the policy.
        streams: number of its streams.
        obs_spec, action_spec: specs of the rows of one stream.
        resets_in_step: True if the environments reset within their step.

    Attributes:
        rows: writes and sends its rows.
        acting: lets its agent act.
        synchronous: lets it wait for versions; None: it does not.
        feed: gets the progress and the task that come with its parameters; None: another has it.
        arrived: parameters that wait for the end of an unroll.
    """

    def __init__(
        self,
        context: Context,
        agent: Agent,
        policy: str = DEFAULT_POLICY,
        *,
        streams: int,
        obs_spec: Mapping[str, Any],
        action_spec: Mapping[str, Any],
        resets_in_step: bool = False,
    ) -> None:
        settings = agent.session_config.sender
        self.rows = RowSender(
            streams,
            obs_spec=obs_spec,
            action_spec=action_spec,
            settings=settings,
            overlap=load_replay_class(agent.learner_config).overlap,
            resets_in_step=resets_in_step,
        )
        self.rows.sender = ExpSender(context, settings, policy)
        super().__init__(
            context, agent, self.rows.sender, policy=policy, renews=not agent.synchronous
        )
        frames = stack_size(agent.env_config)
        self.rows.writer.keep_frames(frames - 1)
        self._stacks = FrameStacks(frames) if frames > 1 else None
        self.acting = Acting(agent)
        self.feed: TaskFeed | None = None
        self.synchronous = Synchronous(self, self.rows.flush) if agent.synchronous else None
        self.arrived: Parameters | None = None
        # The newest observations, and what the agent knows of them.
        self._obs: Nest | None = None
        self._first: Flags = np.ones(streams, np.bool_)
        self._rewards: Rewards | None = None
        self._streams: Indices | None = None

    # -- parameters -------------------------------------------------------------------------------

    def take(self, parameters: Parameters) -> None:
        """Loads parameters that have arrived, unless they have to wait."""
        # One version acts in all of an unroll that the agent makes a gradient of.
        if self.link.acting.pack is not None and not self.rows.writer.between_chunks:
            self.arrived = parameters
            return
        self.arrived = None
        self.load(parameters)
        if self.feed is not None:
            self.feed.update(parameters)
        self.acting.agent = self.agent

    @property
    def ready(self) -> bool:
        """True once it has parameters; asks for them."""
        if self.agent.version:
            return True
        if self.fetcher.idle:
            self.fetcher.want()
        return False

    @property
    def may_go_on(self) -> bool:
        """True once it waits for nothing any more, as far as it is known."""
        return self.window.ready and not self.waits_above

    # -- steps ------------------------------------------------------------------------------------

    def begin(self, obs: Nest, info: Info) -> None:
        """Takes the first observations of all streams, of a VectorEnv."""
        self.rows.writer.begin(obs, info)
        self._first = self.rows.writer.first
        self._obs = obs if self._stacks is None else self._stacks.push(obs, self._first)

    @property
    def has_rows(self) -> bool:
        """True if it has to act."""
        return self._obs is not None

    def act(self) -> npt.NDArray[Any]:
        """Chooses the actions of the newest rows, writes them, and sends what is due."""
        assert self._obs is not None  # it has rows
        if self.synchronous is not None:
            self.synchronous.begin()
        answer = self.acting.answer(self._obs, self._first, self._streams, self._rewards)
        return self.rows.act(answer)

    def observe(self, step: VectorStep) -> None:
        """Takes a step of all streams, of a VectorEnv."""
        obs, self._rewards, terminated, truncated, info = step
        writer = self.rows.writer
        writer.observe(obs, self._rewards, terminated, truncated, info)
        self._first = writer.first
        self._obs = obs if self._stacks is None else self._stacks.push(obs, self._first)
        if self.acting.hooked:
            self.acting.end_step(writer.finished)
        if self.synchronous is not None:
            self.synchronous.count()
        elif not self.fetcher.by_episodes:
            self.fetcher.count(0)
        # Bytes: an operation of numpy costs more, and most steps end nothing.
        elif 1 in terminated.tobytes() or 1 in truncated.tobytes():
            self.fetcher.count(writer.num_finished)

    def observe_some(
        self, rows: Rows | None, episodes: list[EpisodeSummary], *, reports: bool
    ) -> None:
        """Takes the rows of some streams.

        Args:
            rows: the newest rows.
            episodes: joint episodes that the step ended.
            reports: True if this policy sends their summaries, which one of all does.
        """
        self.rows.writer.observe_some(rows, episodes if reports else [])
        self._obs = None
        if rows is not None:
            self._obs, self._first, self._streams = rows.obs, rows.first, rows.streams
            self._rewards = rows.reward
        if self.acting.hooked:
            self.acting.end_step(episodes)
        self.fetcher.count(len(episodes))

    # -- the end ----------------------------------------------------------------------------------

    def leave(self) -> None:
        """Sends the last rows and the goodbye, and begins to wait for their acks."""
        self.leaving.begin()
        self.rows.finish()

    def curves(self) -> dict[str, float]:
        """Returns the numbers to report, by tag."""
        return {"policy_age_seconds": self.age_seconds, **super().curves()}
