"""A policy as an object: made anew, or loaded from a run folder; it acts, and may learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from session import nest
from session.checkpoint import read_state
from session.config import Config
from session.config.named_code import Overrides, with_kept_plan
from session.config.sections import sections_of
from session.errors import UsageError
from session.folder import RunFolder
from session.process.script import outside_a_run
from session.process.seeding import seed_globals
from surreal_like.agent.acting import Acting
from surreal_like.agent.agent import Agent, AgentMode, Progress
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.data.added_parts import policy_spec
from surreal_like.data.batch import Batch
from surreal_like.data.casts import cast
from surreal_like.data.spec import make_clip, parse_obs_spec
from surreal_like.dataflow import Gradients, apply_gradients, compute_gradients
from surreal_like.dataflow.items import copy_item
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk, postprocess_chunk
from surreal_like.experiment.checkpoints import default_checkpoint, name_of, whole_checkpoint
from surreal_like.experiment.find import algorithm_of, choose_policy, find_run, give_parameters
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.learner.learner import Learner
from surreal_like.learner.saver import OPTIMIZER, Content
from surreal_like.network.files import set_parameters
from surreal_like.network.flat import Modules, check_manifest, manifest_of, named_tensors
from surreal_like.network.generators import generators_of, restore_states, states_of
from surreal_like.network.recurrent import reads_rewards
from surreal_like.policies.config import policy_config

Array = npt.NDArray[Any]


class Policy:
    """Acts on one observation or on a batch of them, and learns if it has a learner.

    Args:
        agents: the algorithm's agent, once for greedy and once for other actions.
        config: the run's config.
        checkpoint: name of the loaded checkpoint, such as ``best`` or ``12000``; empty: none.
        learner: the algorithm's learner; None: the policy only acts.
    """

    def __init__(
        self,
        agents: Mapping[bool, Agent],
        config: Config,
        checkpoint: str = "",
        learner: Learner | None = None,
    ) -> None:
        self.config = config
        self.checkpoint = checkpoint
        self._agents = agents
        self._acting = {greedy: Acting(agent) for greedy, agent in agents.items()}
        self._learner = learner
        self._obs_spec = policy_spec(config.env_config.obs_spec)
        self._spec = parse_obs_spec(self._obs_spec)
        self._clip = make_clip(config.env_config)
        self._read = nest.unflatten(
            {
                path: partial(cast, path, dtype=spec.dtype)
                for path, spec in nest.flatten(self._spec, "obs").items()
            },
            "obs",
        )
        # True while the agents have older weights than the learner.
        self._behind = learner is not None

    @property
    def agent(self) -> Agent:
        """The agent that draws its actions; in training mode if the policy learns."""
        self._catch_up()
        return self._agents[False]

    @property
    def greedy(self) -> Agent:
        """The agent that takes the best actions."""
        self._catch_up()
        return self._agents[True]

    @property
    def learns(self) -> bool:
        """True if it has a learner."""
        return self._learner is not None

    @property
    def learner(self) -> Learner:
        """The learner.

        Raises:
            UsageError: the policy only acts.
        """
        if self._learner is None:
            raise UsageError(
                "this policy only acts: make_policy makes one that learns, and "
                "load_policy(folder, trainable=True) loads one"
            )
        return self._learner

    # -- acting -----------------------------------------------------------------------------------

    def __call__(
        self,
        obs: Any,
        state: Any = None,
        *,
        deterministic: bool = True,
        first: npt.NDArray[np.bool_] | None = None,
        reward: Any = None,
    ) -> tuple[Any, Any]:
        """Returns actions and the recurrent state, None for a policy without memory.

        Continuous actions are within their bounds, as the environments of a run clip them, unless
        ``env_config.clip_action`` is False. Those of :meth:`compute_actions` are as they are drawn.

        Args:
            obs: nest of arrays in the environment's format, or a batch with a leading axis.
            state: result of the last call, None at the start of an episode.
            deterministic: the best action, or one drawn from the policy.
            first: True where an episode begins in a batch, ``[N]``; None: nowhere, unless state is
                None.
            reward: reward of the environment for the last action, a number or ``[N]``; only of a
                policy with ``model.memory_inputs: [reward]``, which needs it with a state.

        Raises:
            DataError: the observation does not fit the run's ``obs_spec``, or the reward the rows.
            UsageError: the policy needs the reward.
        """
        actions, state, _ = self._act(obs, state, deterministic, first, reward)
        return self._clip(actions), state

    def compute_actions(
        self, obs: Any, state: Any = None, deterministic: bool = False, reward: Any = None
    ) -> tuple[Any, Any, dict[str, Array]]:
        """Returns actions, the recurrent state, and what is sent to the learner beside actions.

        The last is empty unless the policy learns and draws its actions. Arguments as of a call.
        """
        return self._act(obs, state, deterministic, None, reward)

    def get_initial_state(self, n: int) -> Any:
        """Returns the recurrent state of ``n`` streams where episodes begin; None without one."""
        return self.agent.initial_state(n)

    def postprocess(self, chunk: Chunk) -> Chunk:
        """Returns a chunk as the agent sends it; raises DataError if it changes other columns."""
        return postprocess_chunk(chunk, self.agent.postprocess)

    def _act(
        self,
        obs: Any,
        state: Any,
        deterministic: bool,
        first: npt.NDArray[np.bool_] | None,
        reward: Any,
    ) -> tuple[Any, Any, dict[str, Array]]:
        self._catch_up()
        arrays, batched = self._batch(obs)
        acting = self._acting[deterministic]
        acting.state = state
        if first is None:
            first = np.full(len(nest.leaves(arrays)[0]), state is None)
        rewards = self._check_reward(reward, state, len(first))
        actions, columns = acting.act(arrays, first, rewards=rewards)
        acting.end_step()
        extras = nest.unflatten(columns, "extras") if columns else {}
        if not batched:
            actions, extras = nest.map(lambda a: a[0], (actions, extras))
        return actions, acting.state, extras

    def _check_reward(self, reward: Any, state: Any, rows: int) -> npt.NDArray[np.float32] | None:
        if not reads_rewards(self.config.learner_config):
            return None
        if reward is None:
            if state is None:
                return None
            raise UsageError(
                "this policy reads the reward of its last action (model.memory_inputs): call "
                "policy(obs, state, reward=reward)"
            )
        rewards = np.asarray(reward, np.float32)
        if rewards.size != rows:
            raise DataError(f"reward has the shape {list(rewards.shape)}, expected [{rows}]")
        return rewards.reshape(rows)

    def _catch_up(self) -> None:
        """Gives the agents the weights of the learner, and the progress for their schedules."""
        if not self._behind or self._learner is None:
            return
        self._behind = False
        learner = self._learner
        tensors = named_tensors(learner.module_dict())
        for agent in self._agents.values():
            set_parameters(agent.module_dict(), tensors)
            agent.progress = Progress(learner.env_steps, learner.iteration)
            agent.version = learner.iteration

    def _batch(self, obs: Any) -> tuple[Any, bool]:
        """Returns the observation with a leading axis, and True if it already had one."""
        arrays = self._cast(obs)
        pairs = list(zip(nest.leaves(self._spec), nest.leaves(arrays), strict=True))
        extra = {array.ndim - len(spec.dim) for spec, array in pairs}
        fits = all(array.shape[array.ndim - len(spec.dim) :] == spec.dim for spec, array in pairs)
        batched = extra == {1}
        if not fits or not (batched or extra == {0}):
            shapes = [array.shape for _, array in pairs]
            raise DataError(
                f"observation of shapes {shapes} fits env_config.obs_spec neither as one "
                f"observation nor as a batch: {self._obs_spec}"
            )
        return (arrays if batched else nest.map(lambda a: a[None], arrays)), batched

    def _cast(self, obs: Any) -> Any:
        """Returns the arrays of an observation, in the dtypes of the run.

        Raises:
            DataError: it has other parts than ``obs_spec``, or a number that is NaN or infinite.
        """
        try:
            arrays = nest.map(lambda read, part: read(part), self._read, obs)
        except ValueError as error:
            raise DataError(
                f"the observation does not fit env_config.obs_spec {self._obs_spec}: {error}"
            ) from None
        for path, array in nest.flatten(arrays, "obs").items():
            if array.dtype.kind == "f" and np.count_nonzero(np.isfinite(array)) < array.size:
                raise DataError(f"{path} has numbers that are NaN or infinite")
        return arrays

    # -- learning ---------------------------------------------------------------------------------

    def learn_on_batch(self, batch: Batch) -> dict[str, float]:
        """Makes the algorithm's update from a batch; returns its metrics.

        They are empty where the plan only collects the batch; then no update is counted.

        Raises:
            UsageError: the policy only acts.
        """
        learner = self.learner
        # A class with a learn() of its own makes one update.
        learner.updates_made = 1
        metrics = learner.learn(batch) or {}
        self._move(learner.updates_made)
        return {name: float(value) for name, value in metrics.items()}

    def compute_gradients(self, batch: Batch) -> tuple[Array, dict[str, float]]:
        """Returns the gradients of the loss, float32 ``[P]``, and its metrics; changes nothing.

        A copy of the batch goes through the operators of the plan before the first update, such as
        `compute_advantages`, and then to the loss.
        """
        learner = self.learner
        before = learner.flow.before_update()
        # Some of these operators learn, such as that of a bonus.
        content = Content.of(learner) if before else None
        item: Any = copy_item(batch)
        try:
            for function in before:
                item = function(item)
            given = item if isinstance(item, Gradients) else compute_gradients(learner)(item)
        finally:
            if content is not None:
                content.give(learner)
        metrics = {name: float(value) for name, value in given.metrics.items()}
        return given.flat.cpu().numpy(), metrics

    def apply_gradients(self, flat: Array) -> None:
        """Makes a step of the optimizers from gradients ``[P]``, such as of another policy's.

        Raises:
            DataError: another length; names both.
        """
        learner = self.learner
        size = sum(each.size for each in learner.optimizers.values())
        if np.shape(flat) != (size,):
            raise DataError(
                f"gradients are {list(np.shape(flat))}, but the parameters are [{size}]"
            )
        tensor = torch.as_tensor(flat, dtype=torch.float32, device=learner.device)
        names = tuple(learner.optimizers)
        apply_gradients(learner)(Gradients(tensor, rows=0, names=names))
        self._move(len(learner.pop_updates()))

    def _move(self, updates: int) -> None:
        self.learner.iteration += updates
        self._behind = self._behind or updates > 0

    # -- weights and state ------------------------------------------------------------------------

    def get_weights(self) -> dict[str, Array]:
        """Returns copies of the parameters by name."""
        tensors = named_tensors(self._modules)
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Sets all parameters.

        Raises:
            SpecError: another name, shape or dtype; the message shows both sides.
        """
        own = named_tensors(self._modules)
        given = {name: torch.as_tensor(np.asarray(each)) for name, each in weights.items()}
        ordered = {name: given.pop(name) for name in own if name in given} | given
        check_manifest(manifest_of(own), manifest_of(ordered))
        modules = [agent.module_dict() for agent in self._agents.values()]
        for each in (self._modules, *modules):
            set_parameters(each, ordered)

    def get_state(self) -> dict[str, Any]:
        """Returns all from which it can continue: parameters, optimizers, random states, counts.

        Of a plan with a LocalReplay or `mix_in` it has the random states, but not the rows.
        """
        learner = self.learner
        content = Content.of(learner)
        return {
            "tensors": dict(content.tensors),
            "rest": dict(content.rest),
            "agents": {k: states_of(generators_of(each)) for k, each in self._agents.items()},
            "iteration": learner.iteration,
            "env_steps": learner.env_steps,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores a result of :meth:`get_state`.

        Raises:
            SpecError: the parameters do not fit; the message shows both sides.
            CheckpointError: the state of an optimizer does not fit.
        """
        learner = self.learner
        own = named_tensors(learner.module_dict())
        check_manifest(manifest_of(own), manifest_of(state["tensors"]))
        Content(state["tensors"], state["rest"]).give(learner)
        learner.iteration, learner.env_steps = state["iteration"], state["env_steps"]
        for greedy, agent in self._agents.items():
            restore_states(generators_of(agent), state.get("agents", {}).get(greedy, {}))
        self._behind = True

    @property
    def _modules(self) -> Modules:
        owner = self._agents[True] if self._learner is None else self._learner
        return owner.module_dict()


def make_policy(
    algorithm: str | type[Algorithm],
    *,
    env: str | Callable[..., Any],
    overrides: Overrides = (),
) -> Policy:
    """Returns a new policy that acts and learns in this process; it starts nothing.

    Seeds ``random``, ``numpy.random`` and torch with ``session_config.seed``.

    Args:
        algorithm: name, ``package.module:Class`` or file; or the class.
        env: environment, such as ``gym:CartPole-v1``, or a class or function that other processes
            can import.
        overrides: ``{"section.key": value}`` or ``["section.key=value"]``.

    Raises:
        ConfigError: a setting is wrong.
    """
    user = read_experiment(None, overrides, algorithm=algorithm, env_name=env)
    config = resolve(user)
    seed_globals(config.session_config.seed)
    learner = _learner(config, None)
    agents = _agents(config, None, AgentMode.training)
    return Policy(agents, config, learner=learner)


def load_policy(
    folder: str | Path,
    checkpoint: str | int | None = None,
    *,
    policy: str | None = None,
    trainable: bool = False,
    import_path: Sequence[str | Path] = (),
) -> Policy:
    """Loads the policy of a run.

    Modules of the run's author are searched in ``import_path``, in the import path of the run, and
    finally in the run's own ``code/``.

    Args:
        folder: the run folder, the URL of its mirror, or ``trained:NAME``.
        checkpoint: ``best``, ``latest`` (the newest complete one), or the iteration of a
            checkpoint; None: ``best``, or ``latest`` where nothing was evaluated.
        policy: name of the policy, where a run has several.
        trainable: load the learner, too; ``best`` has no state of its optimizers.
        import_path: further folders with modules that the run needs.

    Raises:
        UsageError: the folder is no run folder, or has no such checkpoint.
        CheckpointError: the checkpoint is incomplete, or does not fit the run's network.
    """
    run = find_run(folder)
    config = run.read_config()
    run.find_modules([*import_path, *config.session_config.import_path])
    name = choose_policy(config, policy, run)
    config = policy_config(config, name)
    path = whole_checkpoint(
        run, default_checkpoint(run) if checkpoint is None else checkpoint, name
    )
    label = name_of(path, name)
    drawing = AgentMode.training if trainable else AgentMode.eval_stochastic
    agents = _agents(config, run, drawing)
    if not trainable:
        for agent in agents.values():
            give_parameters(agent, run, path)
        return Policy(agents, config, label)
    learner = _learner(with_kept_plan(config, run), run)
    networks_only = not (path / OPTIMIZER).exists()
    Content.read(learner, path, networks_only=networks_only).give(learner)
    if not networks_only:
        # Schedules go on where they were; with new optimizers they begin anew, as in a new run.
        state = read_state(path)
        learner.iteration, learner.env_steps = state["iteration"], state["env_steps"]
    return Policy(agents, config, label, learner)


def _learner(config: Config, run: RunFolder | None) -> Learner:
    with outside_a_run():
        return algorithm_of(config, run).learner(**sections_of(config))


def _agents(config: Config, run: RunFolder | None, drawing: AgentMode) -> dict[bool, Agent]:
    """Returns the agent of greedy actions, and the one that draws them."""
    modes = {True: AgentMode.eval_deterministic, False: drawing}
    algorithm = algorithm_of(config, run)
    with outside_a_run():
        return {
            greedy: algorithm.agent(**sections_of(config), agent_id=0, agent_mode=mode)
            for greedy, mode in modes.items()
        }
