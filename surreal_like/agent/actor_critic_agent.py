"""Agent of the algorithms that learn a policy and its state values."""

from __future__ import annotations

from typing import Any

import torch

from session.config import Config
from surreal_like.agent.agent import Agent, AgentMode, rewards_of
from surreal_like.data.spec import parse_action_spec
from surreal_like.network.actor_critic import ActorCritic
from surreal_like.network.distribution import Distribution

_NOWHERE = torch.zeros(0, dtype=torch.bool)


def make_network(learner_config: Config, env_config: Config) -> ActorCritic:
    """Builds the network; agent and learner use the same one."""
    return ActorCritic(env_config.obs_spec, env_config.action_spec, learner_config.model)


class ActorAgent(Agent):
    """Draws actions from its policy; in evaluation takes the most likely actions.

    The parameters of the policy (`logits`, or `mean` and `log_std`) are sent with the actions: the
    learner computes log-probabilities, ratios and divergences from them. The learner computes
    values anew, with weights at least as new as the agent's.
    """

    make_model = staticmethod(make_network)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        network = self.make_model(self.learner_config, self.env_config)
        # It only acts; not freeze(), because a network of the author's may be any torch module.
        self.network = network.requires_grad_(False).eval()
        spec = parse_action_spec(self.env_config.action_spec)
        # Networks represent continuous actions as vectors.
        self._shape = spec.dim if spec.type == "continuous" and len(spec.dim) != 1 else None

    def act(self, obs: Any) -> Any:
        """Returns the actions of observations `[N, ...]`; in training also the policy's columns.

        With a memory, the state before the row is added to the columns as `memory`.
        """
        policy, before = self._look(obs)
        greedy = self.agent_mode is AgentMode.eval_deterministic
        drawn = self._shaped(policy.mode() if greedy else policy.sample(self.generator))
        # A network of the author's may have another core.
        core: Any = self.network.core
        if getattr(core, "inputs", ()):
            self.state = core.remember(self.state, drawn)
        actions = drawn.numpy()
        if self.agent_mode is not AgentMode.training:
            return actions
        extras = {name: column.numpy() for name, column in policy.columns().items()}
        return actions, extras if before is None else {**extras, "memory": before.numpy()}

    def _look(self, obs: Any) -> tuple[Distribution, torch.Tensor | None]:
        """Returns the policy at a row, and the state before it."""
        if self.network.core is None:
            return self.network.act(obs, None, _NOWHERE)[0], None
        before = self.initial_state(len(self.first)) if self.state is None else self.state
        first = torch.as_tensor(self.first)
        policy, self.state = self.network.act(obs, before, first, **rewards_of(self))
        return policy, before

    def initial_state(self, n: int) -> torch.Tensor | None:
        """Returns zeros `[n, state_size]`; None without a memory."""
        core = self.network.core
        return None if core is None else core.initial_state(n)

    def _shaped(self, actions: torch.Tensor) -> torch.Tensor:
        return actions if self._shape is None else actions.reshape(-1, *self._shape)

    def module_dict(self) -> dict[str, ActorCritic]:
        """Returns the network that acts."""
        return {"network": self.network}
