"""The one plan of all policies that a learner's process learns: the config's, or each one's own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat

from session.config.merge import quote
from session.config.named_code import find_function
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from surreal_like.data.batch import Batch
from surreal_like.dataflow.concurrency import concurrently
from surreal_like.dataflow.flow import NOT_READY, STALLED, Flow
from surreal_like.dataflow.items import copy_item
from surreal_like.learner.learner import Learner

KEY = "policies_plan"
# Pulls with zeros in which all operators should have had an item, whatever the weights.
_PULLS = 100


def for_policies(learners: Mapping[str, Learner]) -> Flow:
    """Returns the plan that learns all policies: in each pull one batch of each that has one.

    This is what runs without `policies_plan`; one learner has its own plan.

    Args:
        learners: policy -> its learner.
    """
    flows = list({id(each.flow): each.flow for each in learners.values()}.values())
    return flows[0] if len(flows) == 1 else concurrently(flows, mode="each")


def share_plan(learners: Mapping[str, Learner], place: str | None) -> None:
    """Builds the plan over several policies, if there is one, and makes it that of each learner.

    Args:
        learners: policy -> its learner, in the order of the config.
        place: `policies_plan`.

    Raises:
        ConfigError: it gives no flow, or one that does not train all policies.
        ValueError: an operator rejects an argument, or two sources take the same batches.
    """
    if place is None:
        return
    for learner in learners.values():
        learner.complete()
    flow = find_function(place, KEY, "learners")(dict(learners))
    if not isinstance(flow, Flow):
        raise ConfigError(f"{KEY} {place!r} returned {quote(flow)}, expected a Flow")
    flow.name_plan(KEY)
    _check(flow, learners)
    for learner in learners.values():
        learner.flow = flow


def _check(flow: Flow, learners: Mapping[str, Learner]) -> None:
    """Raises ConfigError for a policy whose batches are not taken, or that is not trained."""
    taken = {id(part.outside) for part in flow.parts()}
    trained = {id(each.learner) for each in flow.operators() if each.trains}
    chosen = [policy for each in flow.operators() for policy in each.policies]
    for policy in chosen:
        if policy not in learners:
            hint = did_you_mean(policy, learners, otherwise=f"there are {', '.join(learners)}")
            raise ConfigError(f"{KEY} selects {policy!r}, which is no policy that learns: {hint}")
    for policy, learner in learners.items():
        if id(learner) not in taken:
            raise ConfigError(
                f"{KEY} takes no batches of policy {policy}, whose agents would wait: add "
                f"rollouts(learners[{policy!r}]) or replay(learners[{policy!r}])"
            )
        if id(learner) not in trained or (chosen and _is_lost(flow, policy, learner)):
            raise ConfigError(
                f"{KEY}: no operator trains policy {policy}: its batches have to come to "
                f"train_one_step(learners[{policy!r}])"
            )


def _is_lost(flow: Flow, policy: str, learner: Learner) -> bool:
    """Returns True if no way from the source of a policy to the end lets its items through."""
    if flow.outside is learner:
        return False
    if any(policy not in each.policies for each in flow.own_operators() if each.policies):
        return True
    ways = [each for each in flow.inputs if any(part.outside is learner for part in each.parts())]
    return all(_is_lost(each, policy, learner) for each in ways)


def rehearse(flow: Flow, learners: Mapping[str, Learner], zeros: Mapping[str, Batch]) -> None:
    """Pulls a plan with batches of zeros until each operator has had an item, as far as they go.

    Args:
        flow: the plan.
        learners: policy -> its learner, to be thrown away.
        zeros: policy -> a batch of zeros.

    Raises:
        RunError: the plan is stalled for ever.
    """
    for policy, learner in learners.items():
        learner.rehearses = True
        learner._given = list(map(copy_item, repeat(zeros[policy], _PULLS)))
    for _ in range(_PULLS):
        item = flow.pull()
        if item is STALLED:
            raise flow.standstill()
        if item is NOT_READY or all(part.items for part in flow.parts() if part.counts_items):
            return
