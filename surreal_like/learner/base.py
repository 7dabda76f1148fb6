"""Base class of the learners of all algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, TypeVar

import torch

from session.config import Config
from session.config.named_code import find_plan
from session.errors import ConfigError
from session.loggerplex.client import Log, early_log
from session.process.clock import WallClock
from session.process.periodic import Every
from session.process.script import add_part
from session.process.seeding import component_seed
from session.tensorplex.client import TensorplexClient
from session.wire.sockets import poll
from surreal_like.coordinator.row_accounts import RowAccounts
from surreal_like.data.batch import Batch, make_batch
from surreal_like.dataflow.flow import NOT_READY, STALLED, Flow, Signal
from surreal_like.dataflow.items import Loss, Trained
from surreal_like.errors import unwritten
from surreal_like.learner.device_feed import DeviceFeed
from surreal_like.learner.operators import train_one_step
from surreal_like.learner.optimizer import Optimizer
from surreal_like.learner.optimizers import Optimizers
from surreal_like.learner.publisher import Publisher
from surreal_like.learner.sources import experience
from surreal_like.learner.summaries import summaries_of, thinned
from surreal_like.network.files import load_parameters, save_parameters
from surreal_like.network.flat import manifest_of, named_tensors, read_flat
from surreal_like.network.generators import Generator, generators_of
from surreal_like.replay.base import load_replay_class
from surreal_like.replay.client import ReplayClient, Sampled

if TYPE_CHECKING:
    from session.process.context import Context

_WAIT_SECONDS = 0.05
# In this group the second part is the section of the curves.
_CLIENT_ID = "learner/learner"


SaveableT = TypeVar("SaveableT", bound="Saveable")


class Saveable(Protocol):
    """State that a checkpoint can hold: of an optimizer, a target network, a schedule."""

    def state_dict(self) -> Mapping[str, Any]:
        """Returns the state: tensors and plain data."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Restores the state."""
        ...


class Learner:
    """Learns from batches and publishes parameters.

    An algorithm overrides :meth:`loss` and, if needed, :meth:`execution_plan`, or :meth:`learn`
    instead of both; :meth:`module_dict`, :meth:`default_config` and, to support resuming,
    :meth:`saveables`.

    Args:
        learner_config: the experiment's ``learner_config``.
        env_config: its ``env_config``, with the specs.
        session_config: its ``session_config``.

    Attributes:
        device: device of the tensors of batches.
        optimizers: those of :meth:`add_optimizer`, by name.
        seed: of the learner's own randomness.
        generator: source of that randomness, on the device.
        updates: updates since the last :meth:`pop_updates`.
        updates_made: number of updates of the newest :meth:`learn` by the plan.
        sampled: the newest batch as replay sent it; None before the first.
        iteration: number of updates of the current weights.
        env_steps: newest known number of environment steps of the whole run; for schedules.
        own_metrics: newest values given to :meth:`update_tensorplex`, by name.
        log: log of the learner.
        tensorplex: metrics client; :meth:`update_tensorplex` is the usual way to report.
    """

    _has_own_learn = False
    _adds_optimizers = False

    def __init__(
        self, *, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        self.learner_config = learner_config
        self.env_config = env_config
        self.session_config = session_config
        self.device = choose_device(learner_config.device)
        self._feed = DeviceFeed(self.device)
        self.seed = component_seed(session_config.seed, "learner", 1)
        self.generator = torch.Generator(self.device).manual_seed(self.seed)
        self.optimizers = Optimizers()
        self.updates: list[Trained] = []
        self.updates_made = 0
        self._metrics_before: dict[str, Any] = {}
        # Entries of learner_config.parts; the first source of a plan takes them, so that a batch
        # that a script passes to learn() does not get them twice.
        self.unused_parts: list[Any] = list(learner_config.get("parts", ()))
        self._kept: dict[str, Saveable] = {}
        # Batch given to learn(), until the source of the plan takes it.
        self._given: Batch | None = None
        self._is_fed = self._in_learn = False
        # True while a check pulls the plan with zeros: one pass over them shows all errors.
        self.rehearses = False
        self.iteration = 0
        self.env_steps = 0
        # Records made before connect() are kept and sent once it is called.
        self.log: Log = early_log("learner")
        self.tensorplex = TensorplexClient.early(_CLIENT_ID)
        add_part(session_config, "learner", 0, self.log, self.tensorplex)
        self._context: Context | None = None
        self._accounts = RowAccounts()
        self.sampled: Sampled | None = None
        # Iteration and message of a publication that was too early.
        self._postponed: tuple[int, str] | None = None
        self._synchronous = bool(learner_config.algo.get("synchronous", False))
        # Newest batch at the newest publication.
        self._published_for: Sampled | None = None
        self._publish_due = Every(calls=1, clock=WallClock().now)
        self._metrics_due = self._publish_due
        self.own_metrics: dict[str, float] = {}
        self._unreported: dict[str, float] = {}
        self.before_init()

    @classmethod
    def default_config(cls) -> Mapping[str, Any]:
        """Returns defaults for ``learner_config``, a Config or a dict; the agent's are added."""
        return Config({})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "learn" in vars(cls) and "execution_plan" not in vars(cls):
            # Its own learn() takes the place of the plan that it inherits.
            cls.execution_plan = Learner.execution_plan  # type: ignore[method-assign]
        cls._has_own_learn = cls.learn is not Learner.learn

    # -- the dataflow -----------------------------------------------------------------------------

    def execution_plan(self) -> Flow:
        """Returns the dataflow of training, from a source of batches to the end of an update."""
        return experience(self).for_each(train_one_step(self))

    def loss(self, batch: Batch) -> torch.Tensor | Loss:
        """Returns the loss of a batch, or of rows of it: a scalar, or a `Loss` with metrics."""
        raise unwritten(self, "loss(batch) or learn(batch)", "your_own_algorithm.md")

    @classmethod
    def uses_loss(cls) -> bool:
        """Returns False if the class has a plan, but no loss: its plan has losses of its own."""
        return cls.loss is not Learner.loss or cls.execution_plan is Learner.execution_plan

    def stats(self, batch: Batch) -> Mapping[str, Any]:
        """Returns further metrics of an update; called after it, with the rows of its batch."""
        return {}

    def learn(self, batch: Batch) -> Any:
        """Makes one update from a batch; returns metrics by name: numbers or 0-dimensional tensors.

        Gives the batch to the execution plan, and pulls until it is used. An algorithm may override
        it; the plan is then only this method.

        If it raises an exception, the batch is stored in the folder ``quarantine/`` of the run and
        skipped; the third in a row ends the run.

        The means over the last 100 updates are reported; of a whole number (``int``), which is a
        count, the newest value. If ``skipped`` is not 0, the update counts as bad, see
        ``learner_config.max_bad_updates``.
        """
        flow = self._inherited_flow if self._has_own_learn else self.flow
        self._in_learn = True
        try:
            self.feed(batch, flow)
        finally:
            self._in_learn = False
        updates = self.pop_updates()
        self.updates_made = len(updates)
        # Several only where a plan trains in several branches; the newest is reported.
        return updates[-1].metrics if updates else {}

    def feed(self, batch: Batch, flow: Flow) -> bool:
        """Pulls a flow until its source has taken this batch instead of one of replay.

        Returns:
            False if it is stalled before, and so for ever.
        """
        self._given, self._is_fed = batch, True
        try:
            while self._given is not None:
                item = flow.pull()
                if item is NOT_READY or item is STALLED:
                    return item is not STALLED
            return True
        finally:
            self._given, self._is_fed = None, False

    @cached_property
    def flow(self) -> Flow:
        """The execution plan of this learner, built at the first use.

        Raises:
            ConfigError: it is no Flow.
        """
        place = self.learner_config.get("execution_plan")
        if place is None:
            return self._named(self.execution_plan())
        return self._named(find_plan(place)(self))

    @cached_property
    def _inherited_flow(self) -> Flow:
        """The plan of the class whose learn() a subclass overrides and calls."""
        base = Learner.execution_plan
        plans = [vars(kind).get("execution_plan", base) for kind in type(self).__mro__[:-1]]
        return self._named(next((plan for plan in plans if plan is not base), base)(self))

    def _named(self, flow: object) -> Flow:
        name = type(self).__name__
        if not isinstance(flow, Flow):
            raise ConfigError(
                f"the execution plan of {name} is a {type(flow).__name__}, expected a Flow"
            )
        flow.name_plan(name.removesuffix("Learner"))
        return flow

    @property
    def overrides_learn(self) -> bool:
        """True if the class has a `learn` of its own, and it is not the caller."""
        return self._has_own_learn and not self._in_learn

    def next_batch(self) -> Batch | Signal:
        """Returns the next batch of replay, or NOT_READY; called by the source of a plan."""
        if self._is_fed:
            given, self._given = self._given, None
            return NOT_READY if given is None else given
        sampled = self.replay.next()
        return NOT_READY if sampled is None else self.to_batch(sampled)

    def pop_updates(self) -> list[Trained]:
        """Returns the updates that the plan has made since the last call."""
        updates, self.updates = self.updates, []
        metrics, self._metrics_before = self._metrics_before, {}
        if updates:
            updates[-1].metrics.update(metrics)
        return updates

    def add_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Adds metrics to those of the next update; called by operators in front of it.

        Args:
            metrics: name -> number or scalar tensor. `skipped` above 0 makes the update a bad one.
        """
        # A part that went well must not hide an update that did not.
        self._metrics_before |= {k: v for k, v in metrics.items() if k != "skipped" or v}

    # -- hooks ------------------------------------------------------------------------------------

    def before_init(self) -> None:
        """Called when the configs and the device are set, before a network is built."""

    def before_loss_init(self) -> None:
        """Called when the networks are built, before the first optimizer is added."""

    def make_optimizers(self) -> Optimizer | Mapping[str, Optimizer]:
        """Returns optimizers that take the place of those of the same names; one: `optimizer`."""
        return {}

    def change_gradients(self, flat: torch.Tensor) -> torch.Tensor:
        """Returns the gradients ``[P]`` of an optimizer before they are clipped and used."""
        return flat

    def keep(self, name: str, state: SaveableT) -> SaveableT:
        """Adds the state of an operator to checkpoints; called where a plan is built.

        Args:
            name: in checkpoints.
            state: to save and to restore.

        Returns:
            The same.
        """
        self._kept[name] = state
        return state

    def checkpointed(self) -> dict[str, Saveable]:
        """Returns name -> state of all that a checkpoint has beside the published modules.

        These are the :meth:`saveables`, and the states of operators of the plan.
        """
        # The plan is built first: its operators add their states.
        _ = self.flow
        return {**self.saveables(), **self._kept}

    def checkpointed_generators(self) -> dict[str, Generator]:
        """Returns the random generators whose states a checkpoint has, by name.

        They are all among the attributes (`torch.Generator`, `numpy.random.Generator`,
        `random.Random`), and those of operators of the plan.
        """
        return {**generators_of(self), **self.flow.generators()}

    @property
    def version(self) -> int:
        """Newest version that was published; 0 before the first."""
        return self.publisher.version if self._context is not None else 0

    # -- optimizers -------------------------------------------------------------------------------

    def add_optimizer(
        self,
        name: str,
        module: torch.nn.Module,
        learning_rate: Mapping[str, Any] | float,
        *,
        where: str = "learner_config.algo.learning_rate",
        **options: Any,
    ) -> Optimizer:
        """Adds an optimizer: to the steps that losses name, to checkpoints and to metrics.

        Args:
            name: `optimizer` if it is the only one; a checkpoint has it as `<name>_optimizer`.
            module: on the device; its parameters become views of one flat tensor.
            learning_rate: a schedule, or a number.
            where: key of the schedule, for messages.
            options: of `Optimizer`.

        Raises:
            ConfigError: the schedule or an option is wrong.
        """
        if not self._adds_optimizers:
            self._adds_optimizers = True
            self.before_loss_init()
            made = self.make_optimizers()
            self.optimizers.update({"optimizer": made} if isinstance(made, Optimizer) else made)
        if name not in self.optimizers:
            self.optimizers.add(name, module, learning_rate, where=where, **options)
        self.optimizers.separate_metrics()
        if type(self).change_gradients is not Learner.change_gradients:
            self.optimizers[name].change = self.change_gradients
        return self.optimizers[name]

    def update_priorities(self, priorities: torch.Tensor) -> None:
        """Sets new priorities of the rows of the newest batch; called in :meth:`learn`.

        Args:
            priorities: ``[B]``, 0 or above. Ignored if the replay samples without priorities.
        """
        if self.sampled is not None:
            self.send_priorities(self.sampled, priorities)

    def send_priorities(self, sampled: Sampled, priorities: torch.Tensor) -> None:
        """Sets new priorities of the rows of a batch that replay sent, ``[B]``."""
        if self.replay.takes_priorities(sampled):
            array = priorities.detach().to("cpu", torch.float32).numpy()
            self.replay.update_priorities(sampled, array)

    def module_dict(self) -> Mapping[str, torch.nn.Module]:
        """Returns name -> module to publish. Must agree with the agent's."""
        raise unwritten(self, "module_dict()", "your_own_algorithm.md")

    def saveables(self) -> Mapping[str, Saveable]:
        """Returns name -> state that a resumed run needs in addition to the published modules.

        Here they are the optimizers of :meth:`add_optimizer`.
        """
        return dict(self.optimizers.saveables())

    def save(self, file_path: str | Path) -> None:
        """Writes the published parameters to a file in safetensors format."""
        save_parameters(self.module_dict(), file_path)

    def load(self, file_path: str | Path) -> None:
        """Reads a file of :meth:`save`.

        Raises:
            CheckpointError: the file cannot be read.
            SpecError: its tensors do not fit these modules.
        """
        load_parameters(self.module_dict(), file_path)

    def connect(self, context: Context, before: Learner | None = None) -> None:
        """Connects to replay and starts publishing; called by the service, or at first use.

        Args:
            context: of the process.
            before: the learner whose connections this one takes over; None: it makes new ones.
        """
        self._context = context
        self.log = self.log.join(context.log)
        self.tensorplex = self.tensorplex.join(context.metrics(_CLIENT_ID))
        self.replay: ReplayClient = self._make_replay(context) if before is None else before.replay
        self.publisher: Publisher = (
            self._make_publisher(context) if before is None else before.publisher
        )
        now = context.clock.now
        publish = self.learner_config.parameter_publish
        self._publish_every = max(1, publish.every)
        self._publish_interval: float = publish.min_publish_interval
        self._published_at = (now() - self._publish_interval, -self._publish_every)
        seconds = self.session_config.tensorplex.update_schedule.learner
        self._metrics_due = Every(seconds=seconds, clock=now)

    def _make_replay(self, context: Context) -> ReplayClient:
        replay, session = self.learner_config.replay, self.session_config
        kind = load_replay_class(self.learner_config)
        return ReplayClient(
            context.wire,
            context.clock,
            shards=replay.replay_shards,
            batch_size=replay.batch_size,
            # Unrolls would only age here; sequences are large, and time comes first in them.
            batches_per_request=1
            if kind.gives() != "rows"
            else session.learner.batches_per_request,
            requests_in_flight=session.learner.prefetch_requests,
            collate=kind.collate(self.learner_config),
            consumes=kind.consumes,
        )

    def _make_publisher(self, context: Context) -> Publisher:
        return Publisher(
            context.wire.publisher("learner.parameters"),
            context.clock,
            incarnation=context.incarnation,
            version=context.welcome.version[1],
        )

    def disconnect(self) -> None:
        """Forgets the connection of :meth:`connect`, whose process has left the run."""
        self._context = None

    def _connected(self) -> Context:
        if self._context is None:
            from session.process.script import script_context

            self.connect(script_context(self.session_config, "learner"))
            # More threads than free cores slow small networks down by an order of magnitude.
            torch.set_num_threads(self.session_config.learner.threads)
        assert self._context is not None  # set by connect
        return self._context

    def pulse(self) -> None:
        """Sends heartbeat and telemetry if they are due; called within a long update."""
        if self._context is not None:
            self._context.pulse()

    def fetch_iterator(self) -> Iterator[Batch]:
        """Yields batches endlessly, for a script; learn from each before requesting the next.

        The memory of a batch may be reused for the next: copy what has to be kept.

        Ends when the process receives a stop request.
        """
        yield from experience(self)

    def tick_script(self) -> bool:
        """Does what is due between two batches of a script; returns False after a stop request."""
        context = self._connected()
        if context.stopping:
            return False
        context.pulse()
        if self.tick_replay():
            for shard, counts in self.replay.counts().items():
                self._accounts.add_shard(shard, counts)
            self.env_steps = max(self.env_steps, self._accounts.env_steps)
        self.tick_publisher()
        return True

    def wait_script(self) -> None:
        """Waits for a message of replay, 50 ms at most."""
        poll(self.replay.sockets(), _WAIT_SECONDS)

    def tick_replay(self, *, ask: bool = True) -> bool:
        """Keeps requests in flight, which report the learner's progress; returns True after a
        reply.

        Raises:
            RunError: replay refuses every request; the message gives the reason.
        """
        self.replay.env_steps, self.replay.iteration = self.env_steps, self.iteration
        came = self.replay.tick(ask=ask)
        for refusal in self.replay.refusals.pop_new():
            self._connected().event("refused", refusal)
        self.replay.refusals.check()
        return came

    def to_batch(self, sampled: Sampled) -> Batch:
        """Converts sampled columns to a batch on this learner's device."""
        self.sampled = sampled
        batch = make_batch(self._feed(sampled.columns))
        batch.origin = sampled
        return batch

    def publish_parameter(
        self, iteration: int, message: str = "", *, final: bool = False, at_once: bool = False
    ) -> bool:
        """Publishes the current parameters, at most as often as the config allows.

        A publication before the end of ``parameter_publish.min_publish_interval`` is postponed:
        :meth:`tick_publisher` publishes later, with the weights of that time. In training
        iterations with synchronous agents it publishes after the last batch of each.

        Args:
            iteration: number of updates of the parameters.
            message: sent with them, for ``fetch_parameter_info``.
            final: the run is over; publish at once.
            at_once: publish even if the config does not allow it yet.

        Returns:
            True if they were published.
        """
        context = self._connected()
        now = context.clock.now()
        then, published = self._published_at
        limited = not (final or at_once)
        last = None if self.sampled is None else self.sampled.last
        if self._synchronous and last is not None and limited:
            if not last:
                return False
            limited = False
        if iteration - published < self._publish_every and limited:
            return False
        self._published_for = self.sampled
        if now - then < self._publish_interval and limited:
            self._postponed = (iteration, message)
            return False
        self._postponed = None
        self._published_at = (now, iteration)
        self.iteration = iteration
        modules = self.module_dict()
        self.publisher.publish(
            read_flat(modules),
            manifest_of(named_tensors(modules)),
            iteration=iteration,
            env_steps=self.env_steps,
            message=message,
            final=final,
        )
        self.replay.version = self.publisher.version
        return True

    def publish_owed(self, *, failed: bool = False) -> None:
        """Publishes the version that synchronous agents wait for, if no update has published it.

        Args:
            failed: the newest batch could not be learned from.
        """
        sampled, owed = self.sampled, self.replay.pop_missed()
        if sampled is not None and sampled is not self._published_for:
            owed |= bool(sampled.last or (failed and sampled.last is None))
        if owed and self._synchronous:
            self.publish_parameter(self.iteration, at_once=True)

    def tick_publisher(self) -> bool:
        """Makes a postponed publication when it is due; returns True if it was made.

        Agents that wait for the newest weights get them, even if no further update follows.
        """
        made = self._postponed is not None and self.publish_parameter(*self._postponed)
        self.publisher.tick()
        return made

    def update_tensorplex(
        self, tag_value_dict: Mapping[str, SupportsFloat], global_step: int | None = None
    ) -> None:
        """Reports scalars, once per ``session_config.tensorplex.update_schedule.learner``.

        Only the newest value of each name is reported. It is also added to the metrics of each
        training episode that ends.

        Raises:
            UsageError: a name or value is invalid.
        """
        numbers = self.tensorplex.checked(tag_value_dict)
        self.own_metrics |= numbers
        self._unreported |= numbers
        if self._metrics_due():
            step = self.env_steps if global_step is None else global_step
            self.tensorplex.add_scalars(self._unreported, step)
            self._unreported = {}

    def summaries(self, update: Trained) -> dict[str, torch.Tensor]:
        """Returns tensors by tag, whose histograms are reported after an update.

        Here they are the parameters and gradients of all modules among the attributes, and the
        columns of the batch. An algorithm may add to them. Called every
        ``session_config.tensorplex.debug_summaries`` updates.
        """
        return summaries_of(vars(self), update)

    def report_summaries(self, update: Trained) -> None:
        """Reports the histograms of :meth:`summaries`.

        Raises:
            UsageError: a tag or a tensor is invalid.
        """
        for tag, tensor in self.summaries(update).items():
            self.tensorplex.add_histogram(tag, thinned(tensor), self.env_steps)


def choose_device(name: str) -> torch.device:
    """Returns the device of ``learner_config.device``; ``auto`` is CUDA if available.

    Raises:
        ConfigError: the device does not exist.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        line = str(error).splitlines()[0]
        raise ConfigError(f"learner_config.device '{name}' cannot be used: {line}") from None
    return device
