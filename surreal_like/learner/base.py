"""Base class of the learners of all algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from session.config import Config
from session.config.named_code import find_plan
from session.errors import ConfigError
from session.process.reporting import Reporting
from session.process.seeding import component_seed
from surreal_like.data.batch import Batch
from surreal_like.dataflow.flow import NOT_READY, STALLED, Flow, Signal
from surreal_like.dataflow.items import Loss, Trained
from surreal_like.errors import unwritten
from surreal_like.learner.metrics import summaries_of, thin
from surreal_like.learner.operators import learn_from, train_one_step
from surreal_like.learner.optimizer import Optimizer, Optimizers
from surreal_like.learner.sources import experience
from surreal_like.network.files import load_parameters, save_parameters
from surreal_like.network.generators import Generator, generators_of

if TYPE_CHECKING:
    from session.process.context import Context
    from surreal_like.learner.link import LearnerLink
    from surreal_like.replay.client import Sampled

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


class Learner(Reporting):
    """Learns from batches and publishes parameters.

    An algorithm overrides :meth:`loss` and, if needed, :meth:`execution_plan`, or :meth:`learn`
    instead of both; :meth:`module_dict`, :meth:`default_config` and, to support resuming,
    :meth:`saveables`.

    Args:
        learner_config: the experiment's ``learner_config``.
        env_config: the ``env_config``, with the specs.
        session_config: the ``session_config``.

    Attributes:
        device: device of the tensors of batches.
        optimizers: those of :meth:`add_optimizer`, by name.
        seed: seed of the learner's own randomness.
        generator: source of that randomness, on the device.
        updates: updates since the last :meth:`pop_updates`.
        updates_made: number of updates of the newest :meth:`learn` by the plan.
        iteration: number of updates of the current weights.
        env_steps: newest known number of environment steps of the whole run; for schedules.
        own_metrics: newest values given to :meth:`update_tensorplex`, by name.
    """

    _adds_optimizers = False

    def __init__(
        self, *, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        super().__init__(session_config, "learner", 0, _CLIENT_ID)
        self.learner_config = learner_config
        self.env_config = env_config
        self.session_config = session_config
        self.device = choose_device(learner_config.device)
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
        # Batch given to learn(), until the source of the plan takes it; None: batches of replay.
        self._given: list[Batch] | None = None
        # True while a check pulls the plan with zeros: one pass over them shows all errors.
        self.rehearses = False
        self.iteration = 0
        self.env_steps = 0
        self._link: LearnerLink | None = None
        self.before_init()

    @classmethod
    def default_config(cls) -> Mapping[str, Any]:
        """Returns defaults for ``learner_config``, a Config or a dict; the agent's are added."""
        return Config({})

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
        self.feed(batch, self.plan)
        updates = self.pop_updates()
        self.updates_made = len(updates)
        # Several only where a plan trains in several branches; the newest is reported.
        return updates[-1].metrics if updates else {}

    def feed(self, batch: Batch, flow: Flow) -> bool:
        """Pulls a flow until its source has taken this batch instead of one of replay.

        Returns:
            False if it is stalled before, and so for ever.
        """
        self._given = [batch]
        try:
            while self._given:
                item = flow.pull()
                if item is NOT_READY or item is STALLED:
                    return item is not STALLED
            return True
        finally:
            self._given = None

    @cached_property
    def flow(self) -> Flow:
        """The dataflow of this learner: the plan, or batches for a `learn` of its own.

        Raises:
            ConfigError: the plan is no Flow.
        """
        if not self._learns_itself():
            return self.plan
        self.after_init()
        return self._name(experience(self).for_each(learn_from(self)))

    @cached_property
    def plan(self) -> Flow:
        """The execution plan, built at its first use.

        Raises:
            ConfigError: it is no Flow.
        """
        if not self._learns_itself():
            self.after_init()
        place = self.learner_config.get("execution_plan")
        return self._name(self.execution_plan() if place is None else find_plan(place)(self))

    @classmethod
    def _learns_itself(cls) -> bool:
        """True if a class overrides `learn` without a plan of its own."""
        first = next(
            kind for kind in cls.__mro__ if {"learn", "execution_plan"} & vars(kind).keys()
        )
        return first is not Learner and "execution_plan" not in vars(first)

    def _name(self, flow: object) -> Flow:
        name = type(self).__name__
        if not isinstance(flow, Flow):
            raise ConfigError(
                f"the execution plan of {name} is a {type(flow).__name__}, expected a Flow"
            )
        flow.name_plan(name.removesuffix("Learner"))
        return flow

    def next_batch(self) -> Batch | Signal:
        """Returns the next batch of replay, or NOT_READY; called by the source of a plan."""
        if self._given is None:
            return self.link.next_batch()
        return self._given.pop() if self._given else NOT_READY

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

    def after_init(self) -> None:
        """Called when the learner is complete, before its plan is built."""

    def make_optimizers(self) -> Optimizer | Mapping[str, Optimizer]:
        """Returns optimizers that take the place of those of the same names; one: `optimizer`."""
        return {}

    def change_gradients(self, flat: torch.Tensor) -> torch.Tensor:
        """Returns the gradients ``[P]`` of an optimizer before they are clipped and used."""
        return flat

    def keep(self, name: str, state: SaveableT) -> SaveableT:
        """Adds the state of an operator to checkpoints; called where a plan is built.

        Args:
            name: name in checkpoints.
            state: state to save and to restore.

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
        of_plan = self.flow.generators()  # first: it makes the learner complete
        return {**generators_of(self), **of_plan}

    @property
    def version(self) -> int:
        """Newest version that was published; 0 before the first."""
        return 0 if self._link is None else self._link.publisher.version

    @property
    def sampled(self) -> Sampled | None:
        """The newest batch as replay sent it; None before the first."""
        return None if self._link is None else self._link.sampled

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
            module: module on the device; its parameters become views of one flat tensor.
            learning_rate: a schedule, or a number.
            where: key of the schedule, for messages.
            options: options of `Optimizer`.

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
        if self._link is not None and self._link.sampled is not None:
            self._link.send_priorities(self._link.sampled, priorities)

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

    # -- the connection to a run ------------------------------------------------------------------

    @property
    def link(self) -> LearnerLink:
        """The connection to the run; in a script it is made at the first use."""
        if self._link is None:
            from session.process.script import script_context

            self.connect(script_context(self.session_config, "learner"))
            # More threads than free cores slow small networks down by an order of magnitude.
            torch.set_num_threads(self.session_config.learner.threads)
        assert self._link is not None  # set by connect
        return self._link

    def connect(self, context: Context, before: Learner | None = None) -> None:
        """Connects to replay and to the parameter server.

        Args:
            context: context of the process.
            before: learner whose sockets this one takes over; None: it opens new ones.
        """
        from surreal_like.learner.link import LearnerLink

        seconds = self.session_config.tensorplex.update_schedule
        self.report_by(context, context.metrics(_CLIENT_ID), seconds)
        earlier = None if before is None else before.link
        self._link = LearnerLink(
            context, self.learner_config, self.device, self.module_dict, earlier
        )

    def disconnect(self) -> None:
        """Forgets the connection, whose process has left the run."""
        self._link = None

    @property
    def run_steps(self) -> int:
        """Environment steps of the whole run, as far as known."""
        return self.env_steps

    def pulse(self) -> None:
        """Sends heartbeat and telemetry if they are due; called within a long update."""
        if self._link is not None:
            self._link.context.pulse()

    def fetch_iterator(self) -> Iterator[Batch]:
        """Yields batches endlessly, for a script; learn from each before requesting the next.

        The memory of a batch may be reused for the next: copy what has to be kept.

        Ends when the process receives a stop request.
        """
        yield from experience(self)

    def tick_script(self) -> bool:
        """Does what is due between two batches of a script; returns False after a stop request."""
        goes_on = self.link.tick_script(self)
        self.env_steps = max(self.env_steps, self.link.env_steps)
        return goes_on

    def wait_script(self) -> None:
        """Waits for a message of replay, 50 ms at most."""
        self.link.wait_script()

    def publish_parameter(
        self, iteration: int, message: str = "", *, final: bool = False, at_once: bool = False
    ) -> bool:
        """Publishes the current parameters, at most as often as the config allows.

        A publication before the end of ``parameter_publish.min_publish_interval`` is postponed: it
        is made later, with the weights of that time. In training iterations with synchronous agents
        it is made after the last batch of each.

        Args:
            iteration: number of updates of the parameters.
            message: text for ``fetch_parameter_info``.
            final: the run is over; publishes at once.
            at_once: publishes even if the config does not allow it yet.

        Returns:
            True if they were published.
        """
        self.iteration = iteration
        return self.link.publish(self, iteration, message, final=final, at_once=at_once)

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
            self.tensorplex.add_histogram(tag, thin(tensor), self.env_steps)


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
