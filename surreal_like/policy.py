"""Loads a trained policy from a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from session import nest
from session.config import Config
from session.errors import UsageError
from session.folder import RunFolder
from surreal_like.agent.base import Agent
from surreal_like.agent.mode import AgentMode
from surreal_like.data.spec import parse_obs_spec
from surreal_like.errors import DataError
from surreal_like.experiment import algorithm_of
from surreal_like.named_checkpoints import whole_checkpoint
from surreal_like.network.files import load_parameters
from surreal_like.network.tensors import to_array, to_tensor


class Policy:
    """Acts on one observation or on a batch of them.

    Args:
        agents: the algorithm's agent, once for greedy and once for stochastic actions.
        config: the run's config.
        checkpoint: name of the loaded checkpoint, such as ``best`` or ``12000``.
    """

    def __init__(self, agents: dict[bool, Agent], config: Config, checkpoint: str) -> None:
        self.config = config
        self.checkpoint = checkpoint
        self._agents = agents
        self._spec = parse_obs_spec(config.env_config.obs_spec)

    def __call__(
        self,
        obs: Any,
        state: Any = None,
        *,
        deterministic: bool = True,
        first: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[Any, Any]:
        """Returns actions and the recurrent state, None for a policy without memory.

        Args:
            obs: nest of arrays in the environment's format, or a batch with a leading axis.
            state: result of the last call, None at the start of an episode.
            deterministic: the best action, or one drawn from the policy.
            first: True where an episode begins in a batch, ``[N]``; None: nowhere, unless state is
                None.

        Raises:
            DataError: the observation does not fit the run's ``obs_spec``.
        """
        arrays, batched = self._batch(obs)
        agent = self._agents[deterministic]
        streams = len(nest.leaves(arrays)[0])
        agent.state = state
        agent.first = np.full(streams, state is None) if first is None else first
        with torch.inference_mode():
            answer = agent.act(to_tensor(arrays))
        actions = to_array(answer[0] if isinstance(answer, tuple) else answer)
        return (actions if batched else nest.map(lambda a: a[0], actions)), agent.state

    def _batch(self, obs: Any) -> tuple[Any, bool]:
        """Returns the observation with a leading axis, and True if it already had one."""
        arrays = nest.map(lambda spec, x: np.asarray(x, spec.dtype), self._spec, obs)
        pairs = list(zip(nest.leaves(self._spec), nest.leaves(arrays), strict=True))
        extra = {array.ndim - len(spec.dim) for spec, array in pairs}
        fits = all(array.shape[array.ndim - len(spec.dim) :] == spec.dim for spec, array in pairs)
        batched = extra == {1}
        if not fits or not (batched or extra == {0}):
            shapes = [array.shape for _, array in pairs]
            raise DataError(
                f"observation of shapes {shapes} fits env_config.obs_spec neither as one "
                f"observation nor as a batch: {self.config.env_config.obs_spec}"
            )
        return (arrays if batched else nest.map(lambda a: a[None], arrays)), batched


def load_policy(
    folder: str | Path, checkpoint: str | int = "best", *, import_path: Sequence[str | Path] = ()
) -> Policy:
    """Loads the policy of a run.

    Modules of the run's author are searched in ``import_path``, in the import path of the run, and
    finally in the run's own ``code/``.

    Args:
        folder: the run folder.
        checkpoint: ``best``, ``latest`` (the newest complete one), or the iteration of a
            checkpoint.
        import_path: further folders with modules that the run needs.

    Raises:
        UsageError: the folder is no run folder, or has no such checkpoint.
        CheckpointError: the checkpoint is incomplete, or does not fit the run's network.
    """
    run = RunFolder(folder)
    if not run.config.exists():
        raise UsageError(f"{folder} is not a run folder: it has no config.yaml")
    config = run.read_config()
    run.find_modules([*import_path, *config.session_config.import_path])
    path = whole_checkpoint(run, checkpoint)
    modes = {True: AgentMode.eval_deterministic, False: AgentMode.eval_stochastic}
    agents = {greedy: _load_agent(config, run, path, mode) for greedy, mode in modes.items()}
    return Policy(agents, config, path.name)


def _load_agent(config: Config, run: RunFolder, path: Path, mode: AgentMode) -> Agent:
    agent = algorithm_of(config, run).agent(
        learner_config=config.learner_config,
        env_config=config.env_config,
        session_config=config.session_config,
        agent_id=0,
        agent_mode=mode,
    )
    load_parameters(agent.module_dict(), path / "params.safetensors")
    return agent
