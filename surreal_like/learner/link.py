"""Connection of a learner to its run: batches come from replay, parameters go to all agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from session.config import Config
from session.process.context import Context
from session.wire.sockets import Socket, poll
from surreal_like.data.batch import Batch, make_batch
from surreal_like.dataflow.flow import NOT_READY, Signal
from surreal_like.experience.row_accounts import RowAccounts
from surreal_like.exploration.schedule import Progress
from surreal_like.learner.device_feed import DeviceFeed
from surreal_like.learner.publisher import Publisher, PublishRule
from surreal_like.network.flat import manifest_of, named_tensors, read_flat
from surreal_like.replay.base import load_replay_class
from surreal_like.replay.client import ReplayClient, Sampled

_WAIT_SECONDS = 0.05


class LearnerLink:
    """Requests batches, and publishes parameters at most as often as the config allows.

    Args:
        context: context of the process.
        learner_config: ``learner_config`` of the experiment.
        device: device of the tensors of batches.
        modules: returns the modules to publish.
        before: link whose sockets this one takes over; None: it opens new ones.

    Attributes:
        context: context of the process.
        replay: client of all shards.
        publisher: publisher of the parameters.
        sampled: newest batch as replay sent it; None before the first.
        env_steps: environment steps of the whole run, by the accounts of replay; in scripts.
    """

    def __init__(
        self,
        context: Context,
        learner_config: Config,
        device: torch.device,
        modules: Callable[[], Mapping[str, torch.nn.Module]],
        before: LearnerLink | None = None,
    ) -> None:
        self.context = context
        if before is None:
            self.replay: ReplayClient = _make_replay(context, learner_config)
            self.publisher: Publisher = _make_publisher(context)
        else:
            self.replay, self.publisher = before.replay, before.publisher
        self.sampled: Sampled | None = None
        self.env_steps = 0
        self._modules = modules
        self._feed = DeviceFeed(device)
        self._accounts = RowAccounts()
        self._synchronous = bool(learner_config.algo.get("synchronous", False))
        self._rule = PublishRule(learner_config.parameter_publish, now=context.clock.now())
        # Iteration and message of a publication that was too early.
        self._postponed: tuple[int, str] | None = None
        # Newest batch at the newest publication.
        self._published_for: Sampled | None = None

    # -- batches ----------------------------------------------------------------------------------

    def next_batch(self) -> Batch | Signal:
        """Returns the next batch of replay on the device, or NOT_READY."""
        sampled = self.replay.next()
        return NOT_READY if sampled is None else self.to_batch(sampled)

    def to_batch(self, sampled: Sampled) -> Batch:
        """Converts sampled columns to a batch on the device."""
        self.sampled = sampled
        batch = make_batch(self._feed(sampled.columns))
        batch.origin = sampled
        return batch

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

    def sockets(self) -> list[Socket]:
        """Returns the sockets by which batches come."""
        return self.replay.sockets()

    # -- scripts ----------------------------------------------------------------------------------

    def tick_script(self, progress: Progress) -> bool:
        """Does what is due between two batches of a script; returns False after a stop request."""
        if self.context.stopping:
            return False
        self.context.pulse()
        if self.tick_replay(progress):
            for shard, counts in self.replay.counts().items():
                self._accounts.add_shard(shard, counts)
            self.env_steps = self._accounts.env_steps
        self.tick_publisher(progress)
        return True

    def wait_script(self) -> None:
        """Waits for a message of replay, 50 ms at most."""
        poll(self.sockets(), _WAIT_SECONDS)

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


def _make_replay(context: Context, learner_config: Config) -> ReplayClient:
    replay, learner = learner_config.replay, context.config.session_config.learner
    kind = load_replay_class(learner_config)
    # Unrolls would only age here; sequences are large, and time comes first in them.
    at_once = learner.batches_per_request if kind.gives() == "rows" else 1
    return ReplayClient(
        context.wire,
        context.clock,
        shards=replay.replay_shards,
        batch_size=replay.batch_size,
        batches_per_request=at_once,
        requests_in_flight=learner.prefetch_requests,
        collate=kind.collate(learner_config),
        consumes=kind.consumes,
    )


def _make_publisher(context: Context) -> Publisher:
    return Publisher(
        context.wire.publisher("learner.parameters"),
        context.clock,
        incarnation=context.incarnation,
        version=context.welcome.version[1],
    )
