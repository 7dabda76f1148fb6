"""Names that a policy gives to its replay shards and to the accounts of its senders."""

from __future__ import annotations

# The policy of a run that names none.
DEFAULT_POLICY = "default"


def shard_name(policy: str, shard: int) -> str:
    """Returns the component name of a replay shard: ``replay-0``, or ``replay-left-0``."""
    return f"replay-{shard}" if policy == DEFAULT_POLICY else f"replay-{policy}-{shard}"


def account_name(sender: str, policy: str) -> str:
    """Returns the name of the account of a sender for a policy: ``agent-0``, ``agent-0:left``."""
    return sender if policy == DEFAULT_POLICY else f"{sender}:{policy}"


def parameters_end(policy: str) -> str:
    """Returns the endpoint on which a policy's parameters are published."""
    return "learner.parameters" if policy == DEFAULT_POLICY else f"learner-{policy}.parameters"


def checkpoint_place(policy: str) -> tuple[str, str]:
    """Returns the folders below ``checkpoints/`` of the checkpoints and of the best parameters."""
    return ("learner", "best") if policy == DEFAULT_POLICY else (policy, f"best/{policy}")
