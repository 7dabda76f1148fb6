"""Base of learners that the operators of plans work on: loss, optimizers, metrics, batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from session.config import Config
from session.errors import ConfigError
from session.process.reporting import Reporting
from session.process.seeding import component_seed
from surreal_like.data.batch import Batch
from surreal_like.data.group import group
from surreal_like.data.policy_names import DEFAULT_POLICY, PolicyId
from surreal_like.dataflow.flow import NOT_READY, Signal
from surreal_like.dataflow.items import Loss, Trained
from surreal_like.errors import unwritten
from surreal_like.learner.optimizer import Optimizer, Optimizers

if TYPE_CHECKING:
    from session.process.context import Context
    from surreal_like.data.batch import Sampled
    from surreal_like.learner.run_link import LearnerLink

SaveableT = TypeVar("SaveableT", bound="Saveable")


class Saveable(Protocol):
    """State that a checkpoint can hold: of an optimizer, a target network, a schedule."""

    def state_dict(self) -> Mapping[str, Any]:
        """Returns the state: tensors and plain data."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Restores the state."""
        ...


class Updates(Reporting):
    """Loss, optimizers and metrics of a learner, and the batches that it learns from.

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
        env_steps: environment steps of the rows learned from: of unrolls those in the batches so
            far, else those that replay had when the newest batch was drawn; for schedules.
        own_metrics: newest values given to :meth:`update_tensorplex`, by name.
        policy_name: name of the policy in the run.
    """

    _adds_optimizers = False

    def __init__(
        self, *, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        super().__init__(session_config, "learner", 0, PolicyId().client)
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
        if (learner_config.get("algo") or {}).get("normalize_rewards", False):
            self.unused_parts.insert(0, {"part": "normalize_rewards"})
        self._kept: dict[str, Saveable] = {}
        # Batch given to learn(), until the source of the plan takes it; None: batches of replay.
        self._given: list[Batch] | None = None
        # True while a check pulls the plan with zeros: one pass over them shows all errors.
        self.rehearses = False
        # True from the first sign that the plan sends priorities to replay.
        self.sends_priorities = False
        self.iteration = 0
        self.env_steps = 0
        self.policy_name = DEFAULT_POLICY
        self._link: LearnerLink | None = None
        # Called with each batch of replay before it is learned from.
        self.on_batch: Callable[[Batch], None] | None = None
        self.before_init()

    def loss(self, batch: Batch) -> torch.Tensor | Loss:
        """Returns the loss of a batch, or of rows of it: a scalar, or a `Loss` with metrics."""
        raise unwritten(self, "loss(batch) or learn(batch)", "your_own_algorithm.md")

    def stats(self, batch: Batch) -> Mapping[str, Any]:
        """Returns further metrics of an update; called after it, with the rows of its batch."""
        return {}

    def module_dict(self) -> Mapping[str, torch.nn.Module]:
        """Returns name -> module to publish. Must agree with the agent's."""
        raise unwritten(self, "module_dict()", "your_own_algorithm.md")

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
            self._freeze(module)
            made = self.make_optimizers()
            self.optimizers.update({"optimizer": made} if isinstance(made, Optimizer) else made)
        if name not in self.optimizers:
            self._freeze(module)
            if self._frozen and not any(each.requires_grad for each in module.parameters()):
                raise ConfigError(
                    f"learner_config.model.frozen leaves nothing of '{name}' to train: it has "
                    f"{', '.join(self._frozen)}"
                )
            self.optimizers.add(name, module, learning_rate, where=where, **options)
        self.optimizers.separate_metrics()
        if type(self).change_gradients is not Updates.change_gradients:
            self.optimizers[name].change = self.change_gradients
        return self.optimizers[name]

    def _freeze(self, *networks: torch.nn.Module) -> list[torch.nn.Module]:
        """Freezes the parts in ``model.frozen``, before an optimizer takes the parameters.

        Returns:
            The networks whose parts these are: the given ones, and those among the attributes.
        """
        found = [*networks, *(x for x in vars(self).values() if isinstance(x, torch.nn.Module))]
        if self._frozen:
            # Few learners have frozen parts; others need not load the module.
            from surreal_like.network.parts import freeze_parts

            freeze_parts(found, self._frozen)
        return found

    @property
    def _frozen(self) -> list[str]:
        """The parts in ``learner_config.model.frozen``."""
        return list((self.learner_config.get("model") or {}).get("frozen", ()))

    def add_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Adds metrics to those of the next update; called by operators in front of it.

        Args:
            metrics: name -> number or scalar tensor. `skipped` above 0 makes the update a bad one.
        """
        # A part that went well must not hide an update that did not.
        self._metrics_before |= {k: v for k, v in metrics.items() if k != "skipped" or v}

    def pop_updates(self) -> list[Trained]:
        """Returns the updates that the plan has made since the last call."""
        updates, self.updates = self.updates, []
        metrics, self._metrics_before = self._metrics_before, {}
        if updates:
            updates[-1].metrics.update(metrics)
        return updates

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

    def next_batch(self) -> Batch | Signal:
        """Returns the next batch of replay, or NOT_READY; called by the source of a plan."""
        if self._given is None:
            # Before the update: its schedules and its version go by the steps.
            batch: Batch | Signal
            batch, self.env_steps = group().scatter(self._take)
            if self.on_batch is not None and isinstance(batch, Batch):
                self.on_batch(batch)
            return batch
        return self._given.pop() if self._given else NOT_READY

    def _take(self) -> tuple[Batch | Signal, int]:
        batch = self.link.next_batch()
        return batch, max(self.env_steps, self.link.count_steps())

    def update_priorities(self, priorities: torch.Tensor) -> None:
        """Sets new priorities of the rows of the newest batch; called in :meth:`learn`.

        Args:
            priorities: ``[B]``, 0 or above. Ignored if the replay samples without priorities.
        """
        self.sends_priorities = True
        if self._link is not None and self._link.sampled is not None:
            self._link.send_priorities(self._link.sampled, priorities)

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

    @link.setter
    def link(self, link: LearnerLink) -> None:
        self._link = link

    def connect(
        self, context: Context, before: Updates | None = None, policy: str = DEFAULT_POLICY
    ) -> None:
        """Connects to replay and to the parameter server.

        Args:
            context: context of the process.
            before: learner whose sockets this one takes over; None: it opens new ones.
            policy: name of the policy.
        """
        from surreal_like.learner.run_link import LearnerLink

        self.policy_name = policy
        seconds = self.session_config.tensorplex.update_schedule
        self.report_by(context, context.metrics(PolicyId(policy).client), seconds)
        earlier = None if before is None else before.link
        self._link = LearnerLink(
            context, self.learner_config, self.device, self.module_dict, policy, earlier
        )

    def disconnect(self) -> None:
        """Forgets the connection, whose process has left the run."""
        self._link = None

    def pulse(self) -> None:
        """Sends heartbeat and telemetry if they are due; called within a long update."""
        if self._link is not None:
            self._link.pulse()

    def tick_script(self) -> bool:
        """Does what is due between two batches of a script; returns False after a stop request."""
        return self.link.tick_script(self)

    def wait_script(self) -> None:
        """Waits for a message of replay, 50 ms at most."""
        self.link.wait_script()

    @property
    def version(self) -> int:
        """Newest version that was published; 0 before the first."""
        return 0 if self._link is None else self._link.publisher.version

    @property
    def sampled(self) -> Sampled | None:
        """The newest batch as replay sent it; None before the first."""
        return None if self._link is None else self._link.sampled


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
