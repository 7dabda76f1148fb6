"""Names that a policy gives to its replay shards, accounts, endpoints and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.process.component import split_name

# The policy of a run that names none.
DEFAULT_POLICY = "default"


def shard_name(policy: str, shard: int) -> str:
    """Returns the component name of a replay shard: ``replay-0``, or ``replay-left-0``."""
    return f"replay-{shard}" if policy == DEFAULT_POLICY else f"replay-{policy}-{shard}"


def shard_policy(shard: str) -> str:
    """Returns the policy whose rows a replay shard of this component name keeps."""
    return split_name(shard)[0].partition("-")[2] or DEFAULT_POLICY


def account_name(sender: str, policy: str) -> str:
    """Returns the name of the account of a sender for a policy: ``agent-0``, ``agent-0:left``."""
    return sender if policy == DEFAULT_POLICY else f"{sender}:{policy}"


def parameters_end(policy: str) -> str:
    """Returns the endpoint on which a policy's parameters are published."""
    return "learner.parameters" if policy == DEFAULT_POLICY else f"learner-{policy}.parameters"


def checkpoint_place(policy: str) -> tuple[str, str]:
    """Returns the folders below ``checkpoints/`` of the checkpoints and of the best parameters."""
    return ("learner", "best") if policy == DEFAULT_POLICY else (policy, f"best/{policy}")


def learns(policy: Mapping[str, Any]) -> bool:
    """Returns True if a policy of an experiment learns; others are fixed, or play snapshots."""
    return "fixed" not in policy and "snapshots_of" not in policy


def learning_policies(policies: Mapping[str, Mapping[str, Any]] | None) -> list[str]:
    """Returns the names of the policies that learn, the first of which owns the run.

    Args:
        policies: section ``policies`` of a resolved experiment; empty or None: one without a name.
    """
    return [name for name, each in (policies or {}).items() if learns(each)] or [DEFAULT_POLICY]


def snapshot_name(policy: str, iteration: int | str) -> str:
    """Returns the name under which a snapshot of a policy is published: ``main-200``."""
    return f"{policy}-{iteration}"


def snapshot_settings(
    policies: Mapping[str, Mapping[str, Any]] | None, policy: str
) -> Mapping[str, Any] | None:
    """Returns the settings of the policy that plays the snapshots of a policy; None: there is none.

    Args:
        policies: section ``policies`` of a resolved experiment.
        policy: name of the policy that learns.
    """
    every = (policies or {}).values()
    return next((each for each in every if each.get("snapshots_of") == policy), None)


def league_place(policy: str) -> str:
    """Returns the folder below ``checkpoints/`` of the snapshots of a policy."""
    return f"{checkpoint_place(policy)[0]}/league"
