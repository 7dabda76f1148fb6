"""Connection of a learner to its run: batches come from replay, parameters go to all agents."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import torch

from session.config import Config
from session.process.clock import WallClock
from session.process.context import Context
from session.show.text import size
from session.wire.socket_state import poll
from surreal_like.data.batch import Batch, Sampled, make_batch
from surreal_like.data.policy_names import DEFAULT_POLICY, PolicyId
from surreal_like.dataflow.flow import NOT_READY, Signal
from surreal_like.exploration.schedule import Progress
from surreal_like.learner.device_prefetch import (
    AHEAD,
    CudaCopies,
    DevicePrefetch,
    DeviceTransfer,
    transfer_columns,
)
from surreal_like.learner.publisher import Publisher, PublishRule
from surreal_like.network.flat import manifest_of, named_tensors, read_flat, weights_of
from surreal_like.replay.batch_requests import ReplayClient
from surreal_like.replay.replay import load_replay_class

_WAIT_SECONDS = 0.05

_TAKEN = itertools.count(1)


class LearnerLink:
    """Requests batches, and publishes parameters at most as often as the config allows.

    Args:
        context: context of the process.
        learner_config: ``learner_config`` of the experiment.
        device: device of the tensors of batches.
        modules: returns the modules to publish.
        policy: name of the policy.
        before: link whose sockets this one takes over; None: it opens new ones.

    Attributes:
        context, policy: the same.
        replay: client of all shards.
        publisher: publisher of the parameters.
        sampled: newest batch as replay sent it; None before the first.
        taken: number of that batch among all that links of this process have given; 0: none yet.
        ahead: copies batches ahead to CUDA; None on the CPU and in a serial run.
        count_steps: returns the environment steps that the parameters have learned from.
    """

    def __init__(
        self,
        context: Context,
        learner_config: Config,
        device: torch.device,
        modules: Callable[[], Mapping[str, torch.nn.Module]],
        policy: str = DEFAULT_POLICY,
        before: LearnerLink | None = None,
    ) -> None:
        self.context, self.policy = context, policy
        if before is None:
            self.replay: ReplayClient = _make_replay(context, learner_config, policy)
            half = learner_config.parameter_publish.encoding == "half"
            self.publisher: Publisher = _make_publisher(context, policy, half=half)
        else:
            self.replay, self.publisher = before.replay, before.publisher
        self.sampled: Sampled | None = None
        self.taken = 0
        self.count_steps: Callable[[], int] = lambda: self.replay.learned_steps
        self._modules = modules
        self._feed = DeviceTransfer(device)
        self.ahead: DevicePrefetch | None = None
        if before is not None:
            self.ahead = before.ahead
        elif device.type == "cuda" and isinstance(context.clock, WallClock):
            replay = self.replay
            self.ahead = DevicePrefetch(replay.next, replay.leaves_out, CudaCopies(device))
        self._device = device
        self._synchronous = bool(learner_config.algo.get("synchronous", False))
        self._rule = PublishRule(learner_config.parameter_publish, now=context.clock.now())
        # Iteration and message of a publication that was too early.
        self._postponed: tuple[int, str] | None = None
        # Newest batch at the newest publication.
        self._published_for: Sampled | None = None

    def pulse(self) -> None:
        """Sends heartbeat and telemetry if they are due."""
        self.context.pulse()

    # -- batches ----------------------------------------------------------------------------------

    def next_batch(self) -> Batch | Signal:
        """Returns the next batch of replay on the device, or NOT_READY."""
        if self.ahead is None:
            sampled = self.replay.next()
            return NOT_READY if sampled is None else self.to_batch(sampled)
        found = self.ahead.next()
        if found is None:
            return NOT_READY
        if self.sampled is None:
            memory = f"{size(AHEAD * self.ahead.size_bytes)} on {self._device}"
            pinned = f"{size((AHEAD + 1) * self.ahead.size_bytes)} of pinned memory"
            self.context.event("feed", f"{AHEAD} batches ahead: {memory}, {pinned}")
        return self._make_batch(*found)

    def to_batch(self, sampled: Sampled) -> Batch:
        """Converts sampled columns to a batch on the device."""
        return self._make_batch(sampled, self._feed(transfer_columns(sampled.columns)))

    def _make_batch(self, sampled: Sampled, tensors: Mapping[str, torch.Tensor]) -> Batch:
        self.sampled, self.taken = sampled, next(_TAKEN)
        self.replay.count_steps(sampled)
        batch = make_batch(tensors)
        batch.origin = sampled
        return batch

    @property
    def waiting(self) -> int:
        """Number of batches that are ready, or on their way to the device."""
        return self.replay.waiting + (0 if self.ahead is None else len(self.ahead))

    def send_priorities(self, sampled: Sampled, priorities: torch.Tensor) -> None:
        """Sets new priorities of the rows of a batch that replay sent, ``[B]``."""
        if self.replay.takes_priorities(sampled):
            array = priorities.detach().to("cpu", torch.float32).numpy()
            self.replay.update_priorities(sampled, array)

    def tick_replay(self, progress: Progress, *, ask: bool = True) -> bool:
        """Keeps requests in flight, which report the progress; returns True after a reply.

        Raises:
            RunError: replay refuses every request; the message gives the reason.
        """
        self.replay.env_steps, self.replay.iteration = progress.env_steps, progress.iteration
        came = self.replay.tick(ask=ask)
        for refusal in self.replay.refusals.pop_new():
            self.context.event("refused", refusal)
        self.replay.refusals.check()
        return came

    # -- scripts ----------------------------------------------------------------------------------

    def tick_script(self, progress: Progress) -> bool:
        """Does what is due between two batches of a script; returns False after a stop request."""
        if self.context.stopping:
            return False
        self.context.pulse()
        self.tick_replay(progress)
        self.tick_publisher(progress)
        return True

    def wait_script(self) -> None:
        """Waits for a message of replay, 50 ms at most."""
        poll(self.replay.sockets(), _WAIT_SECONDS)

    # -- parameters -------------------------------------------------------------------------------

    def publish(
        self,
        progress: Progress,
        iteration: int,
        message: str = "",
        *,
        final: bool = False,
        at_once: bool = False,
    ) -> bool:
        """Publishes the current parameters; returns True unless it is too early.

        A publication before the end of ``parameter_publish.min_publish_interval`` is postponed:
        :meth:`tick_publisher` makes it, with the weights of that time.

        Args:
            progress: the environment steps are sent with the parameters.
            iteration: number of updates of the parameters.
            message: text for ``fetch_parameter_info``.
            final: the run is over; publishes at once.
            at_once: publishes even if the config does not allow it yet.
        """
        last = self.sampled.last if self.sampled is not None and self._synchronous else None
        now = self.context.clock.now()
        decision = "publish" if final or at_once else self._rule.decide(now, iteration, last)
        if decision == "skip":
            return False
        self._published_for = self.sampled
        if decision == "postpone":
            self._postponed = (iteration, message)
            return False
        self._postponed = None
        self._rule.on_publication(now, iteration)
        modules = self._modules()
        self.publisher.publish(
            read_flat(modules),
            manifest_of(named_tensors(modules)),
            iteration=iteration,
            env_steps=progress.env_steps,
            message=message,
            final=final,
            weights=weights_of(modules),
        )
        self.replay.version = self.publisher.version
        return True

    def publish_owed(self, progress: Progress, *, failed: bool = False) -> None:
        """Publishes the version that synchronous agents wait for, if no update has published it.

        Args:
            progress: state of the run.
            failed: the newest batch could not be learned from.
        """
        sampled, owed = self.sampled, self.replay.pop_missed()
        if sampled is not None and sampled is not self._published_for:
            owed |= bool(sampled.last or (failed and sampled.last is None))
        if owed and self._synchronous:
            self.publish(progress, progress.iteration, at_once=True)

    def tick_publisher(self, progress: Progress) -> bool:
        """Makes a postponed publication when it is due; returns True if it was made.

        Agents that wait for the newest weights get them, even if no further update follows.
        """
        made = self._postponed is not None and self.publish(progress, *self._postponed)
        self.publisher.tick()
        return made


def _make_replay(context: Context, learner_config: Config, policy: str) -> ReplayClient:
    replay, learner = learner_config.replay, context.config.session_config.learner
    kind = load_replay_class(learner_config)
    # Unrolls would only age here; sequences are large, and time comes first in them.
    at_once = learner.batches_per_request if kind.gives() == "rows" else 1
    return ReplayClient(
        context.wire,
        context.clock,
        shards=list(map(PolicyId(policy).shard, range(replay.replay_shards))),
        batch_size=replay.batch_size,
        batches_per_request=at_once,
        requests_in_flight=learner.prefetch_requests,
        collate=kind.collate(learner_config),
        consumes=kind.consumes,
    )


def _make_publisher(context: Context, policy: str, *, half: bool) -> Publisher:
    return Publisher(
        context.wire.publisher(PolicyId(policy).parameters),
        context.clock,
        incarnation=context.incarnation,
        version=context.welcome.version[1],
        policy=policy,
        half=half,
    )
