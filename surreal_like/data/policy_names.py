"""The policies of a run, and the names that each gives to its shards, accounts, endpoints, files.

A run of one policy is a run of several with one entry. Its policy has the name ``default``, which
adds nothing to any name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from session.addons import Opponent, opponents
from session.config import Config
from session.process.component import split_name

# The policy of a run that names none.
DEFAULT_POLICY = "default"


class PolicyId(NamedTuple):
    """The name of a policy, and all names that follow from it."""

    name: str = DEFAULT_POLICY

    @classmethod
    def of_shard(cls, shard: str) -> PolicyId:
        """Returns the policy whose rows a replay shard of this component name keeps."""
        return cls(split_name(shard)[0].partition("-")[2] or DEFAULT_POLICY)

    def add(self, form: str = "{}") -> str:
        """Returns a form with the name filled in; the default policy adds nothing: empty."""
        return "" if self.name == DEFAULT_POLICY else form.format(self.name)

    def shard(self, number: int) -> str:
        """Returns the component name of a replay shard: ``replay-0``, or ``replay-left-0``."""
        return f"replay{self.add('-{}')}-{number}"

    def account(self, sender: str) -> str:
        """Returns the name of the account of a sender: ``agent-0``, or ``agent-0:left``."""
        return f"{sender}{self.add(':{}')}"

    def snapshot(self, iteration: int | str) -> str:
        """Returns the name under which a snapshot is published: ``main-200``."""
        return f"{self.name}-{iteration}"

    def seed(self, seed: int) -> int:
        """Returns the seed of the policy in a process: two policies draw independently."""
        # Not at the top: numpy would slow down commands that only plan a run.
        from session.process.seeding import component_seed

        return component_seed(seed, self.name, 1) if self.add() else seed

    @property
    def parameters(self) -> str:
        """Endpoint on which its parameters are published."""
        return f"learner{self.add('-{}')}.parameters"

    @property
    def client(self) -> str:
        """Name of the sender of its learner's metrics: ``learner/learner``, ``learner/left``."""
        return f"learner/{self.checkpoints}"

    @property
    def checkpoints(self) -> str:
        """Folder of its checkpoints, below ``checkpoints/``."""
        return self.add() or "learner"

    @property
    def best(self) -> str:
        """Folder of its best parameters, below ``checkpoints/``."""
        return f"best{self.add('/{}')}"


def policies_of(config: Mapping[str, Any]) -> dict[str, Config]:
    """Returns the settings of the policies of a resolved experiment by name, in their order.

    In an environment of a single agent it is one policy, which has the settings of the run.
    """
    found: dict[str, Config] = config.get("policies") or {DEFAULT_POLICY: Config()}
    return found


def learning_policies(config: Mapping[str, Any]) -> list[str]:
    """Returns the names of the policies that learn, the first of which owns the run."""
    return [name for name, each in policies_of(config).items() if learns(each)]


def named_policies(config: Mapping[str, Any]) -> list[str]:
    """Returns the policies that learn and have a name: files and tables show them one by one."""
    return [name for name in learning_policies(config) if PolicyId(name).add()]


def learns(policy: Mapping[str, Any]) -> bool:
    """Returns True if a policy of an experiment learns; others are fixed, or opponents."""
    return "fixed" not in policy and opponent_of(policy) is None


def opponent_of(policy: Mapping[str, Any]) -> Opponent | None:
    """Returns the kind of a policy that plays parameters of another one; None for others."""
    return next((kind for kind in opponents() if kind.key in policy), None)


def agents_of(config: Mapping[str, Any]) -> list[str]:
    """Returns the names of all agents of the environment; a single agent has none."""
    every = policies_of(config).values()
    return list(dict.fromkeys(agent for each in every for agent in each.get("agents", ())))
