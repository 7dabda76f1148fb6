"""Workers in processes of their own, whose unrolls a script learns from."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import torch

from session.config import Config
from session.errors import ConfigError, DeadlineError, RunError
from session.folder import RunFolder
from session.launchers.local import LocalLauncher
from session.nest import Nest
from session.process.component import Topology
from session.process.script import leave, script_context
from session.process.seeding import component_seed
from surreal_like.addons.scripts.policy import Policy
from surreal_like.agent.acting import Acting
from surreal_like.data.batch import Batch, Columns, make_batch
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.data.frames import stack_size
from surreal_like.data.policy_names import agents_of
from surreal_like.dataflow import Flow, from_items
from surreal_like.env.environment import Info, VectorEnv, VectorStep, VectorWrapper
from surreal_like.env.frame_stack import stack_frames
from surreal_like.env.vector import make_vector_env
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.row_writer import RowWriter
from surreal_like.experiment.topology import PRELOAD, make_topology
from surreal_like.replay.replay import load_replay_class
from surreal_like.replay.tuple_replay import ChunkSamples
from surreal_like.run.request import Plan

_WAIT_SECONDS = 120.0
_END_SECONDS = 10.0
_POLL_SECONDS = 0.01

BATCH_MODES = ("truncate_episodes", "complete_episodes")
# Rows of each stream after which an episode without a horizon is cut.
_LONGEST = 1_000_000


class RolloutWorker:
    """Steps environments with a policy, and gives batches as its algorithm learns from them.

    Args:
        policy: whose agent acts, with the weights of each moment.
        num_envs: environments that are stepped side by side.
        rollout_fragment_length: steps of each in one batch.
        batch_mode: `truncate_episodes`; or `complete_episodes`: each batch is one whole episode,
            however long, of one environment.
        horizon: steps after which an episode is cut; None: as the config says.

    Raises:
        ConfigError: there is no such batch mode, or it does not go with several environments.
    """

    def __init__(
        self,
        policy: Policy,
        num_envs: int = 1,
        rollout_fragment_length: int = 100,
        batch_mode: str = "truncate_episodes",
        horizon: int | None = None,
    ) -> None:
        if batch_mode not in BATCH_MODES:
            raise ConfigError(f"batch_mode is {batch_mode!r}, expected {' or '.join(BATCH_MODES)}")
        if batch_mode == "complete_episodes" and num_envs != 1:
            raise ConfigError(
                f"batch_mode is complete_episodes and num_envs is {num_envs}, but episodes of "
                "several environments end at different times: use num_envs=1, or truncate_episodes"
            )
        self._policy = policy
        config = policy.config.copy()
        if horizon is not None:
            config.env_config.limit_episode_length = horizon
        whole = batch_mode == "complete_episodes"
        sender = config.session_config.sender
        sender.flush_iteration = _LONGEST if whole else rollout_fragment_length
        sender.cut = "episodes" if whole else "steps"
        kind = load_replay_class(config.learner_config)
        seed = component_seed(config.session_config.seed, "rollout", 1)
        single = make_vector_env(config.env_config, num_envs=num_envs, seed=seed)
        self._recorder = _Recorder(config, single, 0 if whole else kind.overlap)
        # Frames are stacked outside the recorder: chunks hold each frame once.
        self._env = stack_frames(self._recorder, config.env_config)
        self._columns = ChunkSamples(config.learner_config, config.env_config, continues=not whole)
        self._acting = Acting(policy.agent)
        self._obs: Any = None
        self._rewards: Any = None

    def sample(self) -> Batch:
        """Steps until a batch is full, and returns it; its memory is its own.

        Where samples are longer than a fragment, it steps until at least one is complete.

        Raises:
            DataError: the environment or the agent gave a wrong array.
        """
        if self._obs is None:
            self._obs, _ = self._env.reset()
        columns = self._sample()
        while not columns:
            columns = self._sample()
        device = self._policy.learner.device if self._policy.learns else None
        return make_batch({k: torch.from_numpy(v).to(device) for k, v in columns.items()})

    def _sample(self) -> Columns:
        """Steps until a chunk is full; returns the samples that it has completed."""
        while not self._recorder.chunks:
            self._step()
        chunk = self._policy.postprocess(self._recorder.chunks.popleft())
        if self._policy.learns:
            self._policy.learner.env_steps += chunk.env_steps
        return self._columns(chunk)

    def _step(self) -> None:
        acting, recorder = self._acting, self._recorder
        # With the weights of the learner.
        acting.agent = self._policy.agent
        answer = acting.answer(self._obs, recorder.writer.first, rewards=self._rewards)
        recorder.version = acting.agent.version
        try:
            self._obs, self._rewards, *_ = self._env.step(answer)
        except BaseException:
            # The next sample begins new episodes.
            self._obs = self._rewards = None
            raise
        if acting.hooked:
            acting.end_step(recorder.writer.finished)

    def pop_episodes(self) -> list[EpisodeSummary]:
        """Returns summaries of the episodes that ended since the last call: `return`, `length`."""
        return self._recorder.writer.pop_recent()

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Recorder(VectorWrapper):
    """Cuts the steps of environments into chunks, as `ExpSenderWrapper` does, and keeps them."""

    def __init__(self, config: Config, env: VectorEnv, overlap: int) -> None:
        super().__init__(env)
        self.chunks: deque[Chunk] = deque()
        self.version = self._sequence = 0
        self.writer = RowWriter(
            self.num_envs,
            obs_spec=self.obs_spec,
            action_spec=self.action_spec,
            settings=config.session_config.sender,
            overlap=overlap,
            send=self._keep,
            resets_in_step=self.resets_in_step,
        )
        self.writer.keep_frames(stack_size(config.env_config) - 1)

    def reset(self) -> tuple[Nest, Info]:
        """Begins an episode in every environment; open ones are cut."""
        self.writer.end({})
        obs, info = self.env.reset()
        self.writer.begin(obs, info)
        return obs, info

    def step(self, actions: Any) -> VectorStep:
        """Writes the row at which the actions were taken, and steps."""
        actions, extras = self.writer.unpack(actions)
        self.writer.act(actions, extras, version=self.version, now=0.0, metrics={})
        step = self.env.step(actions)
        self.writer.observe(*step)
        return step

    def _keep(self, chunk: Chunk) -> None:
        self._sequence += 1
        chunk.sequence, chunk.stamps = self._sequence, {}
        self.chunks.append(chunk)


class WorkerSet:
    """Agents, replay and parameter server in processes; this process is the learner of their run.

    Use it in a ``with`` statement, which ends all processes; one at a time. Agents wait for new
    weights after each unroll: :meth:`set_weights` sends them, else the next :meth:`sample`.

    Args:
        policy: policy that learns from unrolls; its weights are published.
        num_workers: agents; 0: this process steps the environments, without any other.

    Raises:
        ConfigError: its algorithm learns from single rows or from sequences, or its environment has
            several agents.
        UsageError: the policy only acts.
    """

    def __init__(self, policy: Policy, num_workers: int = 4) -> None:
        self._policy = policy
        self._learner = policy.learner
        config = self._config = policy.config.copy()
        if agents_of(config):
            raise ConfigError(
                f"{config.env_config.env_name} is an environment of several agents, but a "
                "WorkerSet collects the experience of one: train learns from theirs"
            )
        gives = load_replay_class(config.learner_config).gives()
        if num_workers and gives == "gradients":
            raise ConfigError(
                "a WorkerSet gives unrolls, but learner_config.gradients_at is agent: set it to "
                "learner, or use num_workers=0"
            )
        if num_workers and gives != "unrolls":
            raise ConfigError(
                f"a WorkerSet gives unrolls, but {config.algorithm} learns from "
                f"{'sequences' if gives == 'sequences' else 'single rows'}: use "
                "num_workers=0, or an algorithm such as ppo"
            )
        self._num_workers = num_workers
        self._worker: RolloutWorker | None = None
        self._stack = ExitStack()
        # Newest version when the last unrolls arrived: agents wait for a newer one.
        self._sampled = 0

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Ends all processes."""
        self._stack.close()

    def _open(self) -> None:
        config, session = self._config, self._config.session_config
        num_envs: int = config.env_config.num_envs
        length: int = session.sender.flush_iteration
        if not self._num_workers:
            self._worker = RolloutWorker(self._policy, num_envs, length)
            self._stack.callback(self._worker.close)
            return
        session.agent.num, session.evaluator.num = self._num_workers, 0
        config.learner_config.algo.synchronous = True
        for learner_config in (config.learner_config, self._learner.learner_config):
            learner_config.replay.batch_size = self._num_workers * num_envs
        folder = RunFolder(
            Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sl-workers-")))
            / "run"
        )
        topology = make_topology(config)
        Plan(config, topology).write(folder.path)
        self._launcher = self._stack.enter_context(_AllButLearner(config, topology, folder))
        self._launcher.launch()
        self._stack.callback(self._end)
        self._learner.connect(script_context(config.session_config, "learner"))
        self.set_weights(self._policy)

    def sample(self) -> Batch:
        """Returns one unroll of each worker, side by side; it is valid until the next one.

        Raises:
            RunError: a process has failed too often.
            DeadlineError: there was no unroll for two minutes.
        """
        if self._worker is not None:
            return self._worker.sample()
        if self._learner.version == self._sampled:
            self._publish()
        deadline = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < deadline:
            self._launcher.poll()
            if self._launcher.outcome is not None:
                raise RunError(f"the workers have ended: {self._launcher.outcome.reason}")
            self._learner.tick_script()
            batch = self._learner.next_batch()
            if isinstance(batch, Batch):
                self._sampled = self._learner.version
                return batch
            self._learner.wait_script()
        raise DeadlineError(f"no worker has sent an unroll for {_WAIT_SECONDS:g} s")

    def rollouts(self) -> Flow:
        """Returns the batches of :meth:`sample` as a flow, for loops; a pull waits."""
        return from_items(iter(self.sample, None))

    def set_weights(self, policy: Policy) -> None:
        """Sends the weights of a policy to all workers.

        Raises:
            SpecError: they do not fit; the message shows both sides.
        """
        if policy is not self._policy:
            self._policy.set_weights(policy.get_weights())
        if self._worker is None:
            self._publish()

    def _publish(self) -> None:
        # Also weights under the same number, which a run would not publish again.
        self._learner.publish_parameter(self._learner.iteration, at_once=True)

    def _end(self) -> None:
        """Lets the workers leave, then ends the servers."""
        learner, launcher = self._learner, self._launcher
        deadline = time.monotonic() + _END_SECONDS
        learner.publish_parameter(learner.iteration, final=True)
        learner.link.replay.drain()
        while launcher.has_agents and time.monotonic() < deadline:
            learner.tick_script()
            launcher.poll(_POLL_SECONDS)
        learner.disconnect()
        leave()
        launcher.stop(reason="the worker set was closed")
        while launcher.running and time.monotonic() < deadline:
            launcher.poll(_POLL_SECONDS)


class _AllButLearner(LocalLauncher):
    """Runs the components of a planned run but its learner, which is a script."""

    def __init__(self, config: Config, topology: Topology, folder: RunFolder) -> None:
        learner = topology.component("learner")
        others = Topology((c for c in topology if c is not learner), outside=learner.binds)
        super().__init__(config, others, folder, preload=PRELOAD)

    def _write_files(self) -> None:
        """Does nothing: the plan has written the files, with the learner."""

    @property
    def has_agents(self) -> bool:
        """True while an agent lives."""
        ends = self.components().items()
        return any(end["exit_code"] is None for name, end in ends if name.startswith("agent-"))
