"""Plans over several policies: what they train, in which order, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from session.errors import ConfigError, SurrealError
from surreal_like.algorithm.dqn import DQN
from surreal_like.algorithm.impala import Impala
from surreal_like.data.batch import Batch, make_batch
from surreal_like.dataflow import (
    NOT_READY,
    Flow,
    LocalReplay,
    concurrently,
    for_policies,
    replay,
    rollouts,
    select,
    store,
    train_one_step,
    update_target,
)
from surreal_like.dataflow.items import columns_of
from surreal_like.learner.joint import rehearse, share_plan
from surreal_like.learner.learner import Learner
from tests.surreal_like.algorithm import test_dqn, unrolls
from tests.surreal_like.learner.ranks import feed

Learners = Mapping[str, Any]


def learners_of(algorithm: Any, configs: Callable[[], Any]) -> dict[str, Learner]:
    made: dict[str, Learner] = {}
    for name in ("left", "right"):
        torch.manual_seed(0)
        made[name] = algorithm.learner(**configs())
        made[name].policy_name = name
    return made


def by_rows() -> dict[str, Learner]:
    return learners_of(DQN, test_dqn.configs)


def by_unrolls() -> dict[str, Learner]:
    return learners_of(Impala, lambda: unrolls.configs(Impala))


def rows(seed: int) -> Batch:
    torch.manual_seed(seed)
    return test_dqn.make_batch(size=8)


def streams(seed: int) -> Batch:
    return unrolls.make_batch(unrolls.DISCRETE, seed=seed)


def feed_all(learners: Mapping[str, Learner], batch: Callable[[int], Batch]) -> None:
    for learner, first in zip(learners.values(), (0, 100), strict=True):
        feed(learner, map(batch, itertools.count(first)))


def learned(flow: Flow, learners: Mapping[str, Learner], pulls: int) -> str:
    """Pulls a plan; returns the first letters of the policies that learned, in order."""
    order = ""
    for _ in range(pulls):
        flow.pull()
        for name, learner in learners.items():
            made = len(learner.pop_updates())
            learner.iteration += made
            order += made * name[0]
    return order


def tensors(learner: Learner) -> list[torch.Tensor]:
    return [each for module in learner.module_dict().values() for each in module.parameters()]


def place(function: Callable[..., Any]) -> str:
    return f"{__name__}:{function.__name__}"


def step(learner: Any) -> Flow:
    return replay(learner).for_each(train_one_step(learner))


# -- what runs ------------------------------------------------------------------------------------


def test_one_learner_has_its_own_plan_and_several_have_theirs_at_once() -> None:
    learners = by_rows()
    left = {"left": learners["left"]}
    assert for_policies(left) is learners["left"].flow
    flow = for_policies(learners)
    assert flow.inputs == (learners["left"].flow, learners["right"].flow)
    assert flow.outline()[0] == "- replay(left)"
    assert flow.outline()[-1] == "concurrently(each)"
    feed_all(learners, rows)
    assert learned(flow, learners, 3) == "lrlrlr"


def test_the_other_policy_learns_while_one_has_no_batch() -> None:
    learners = by_rows()
    feed(learners["left"], [])
    feed(learners["right"], map(rows, range(3)))
    flow = for_policies(learners)
    assert learned(flow, learners, 3) == "rrr"
    assert flow.pull() is NOT_READY


def weighted(learners: Learners) -> Flow:
    flows = [step(learner) for learner in learners.values()]
    return concurrently(flows, round_robin_weights=[2, 1])


def test_weights_give_the_order_of_updates() -> None:
    learners = by_rows()
    share_plan(learners, place(weighted))
    flow = for_policies(learners)
    assert {id(each.flow) for each in learners.values()} == {id(flow)}
    feed_all(learners, rows)
    assert learned(flow, learners, 9) == "llrllrllr"


def selected(learners: Learners) -> Flow:
    clones = rollouts(learners).duplicate(len(learners))
    branches = [
        clone.for_each(select(name)).for_each(train_one_step(learners[name]))
        for name, clone in zip(learners, clones, strict=True)
    ]
    return concurrently(branches, mode="async")


def apart(learners: Learners) -> Flow:
    flows = [rollouts(each).for_each(train_one_step(each)) for each in learners.values()]
    return concurrently(flows, mode="async")


def test_selected_batches_of_one_source_train_as_sources_of_their_own() -> None:
    found = []
    for plan in (selected, apart):
        learners = by_unrolls()
        share_plan(learners, place(plan))
        for learner, first in zip(learners.values(), (0, 100), strict=True):
            feed(learner, map(streams, range(first, first + 5)))
        order = learned(for_policies(learners), learners, 60)
        assert (order.count("l"), order.count("r")) == (5, 5)
        found.append([x for learner in learners.values() for x in tensors(learner)])
    assert all(map(torch.equal, *found))


def test_items_know_their_policy() -> None:
    learners = by_unrolls()
    feed_all(learners, streams)
    flow = rollouts(learners)
    assert [flow.pull().policy for _ in range(4)] == ["left", "right", "left", "right"]
    seen = []
    one, other = rollouts(learners).duplicate(2)
    one.for_each(lambda batch: seen.append(batch.policy)).pull()
    assert other.pull().policy == seen[0]
    anew = rollouts(learners).for_each(lambda batch: make_batch(columns_of(batch)))
    assert {anew.pull().policy for _ in range(2)} == {"left", "right"}


def stored(learners: Learners) -> Flow:
    memory = LocalReplay(capacity=64, min_size=32, seed=3)
    left, right = learners.values()
    keep = replay(right).for_each(store(memory))
    again = replay(memory, batch_size=8).for_each(train_one_step(right))
    again = again.for_each(update_target(right.target))
    return concurrently([step(left), keep, again], output_indexes=[0, 2], mode="async")


def test_a_policy_learns_from_a_replay_of_the_plan_whose_state_is_saved() -> None:
    learners = by_rows()
    share_plan(learners, place(stored))
    feed_all(learners, rows)
    order = learned(for_policies(learners), learners, 40)
    assert order.count("r") > 5
    assert order.count("l") > 5
    states = [each.checkpointed_generators() for each in learners.values()]
    assert all("replay(8 of 64)" in each for each in states)
    assert states[0]["replay(8 of 64)"] is states[1]["replay(8 of 64)"]


# -- what is refused ------------------------------------------------------------------------------


def nothing(learners: Learners) -> Any:
    return None


def left_only(learners: Learners) -> Flow:
    return step(learners["left"])


def right_untrained(learners: Learners) -> Flow:
    return concurrently([step(learners["left"]), replay(learners["right"])], mode="async")


def right_unselected(learners: Learners) -> Flow:
    one, other = rollouts(learners).duplicate(2)
    train = [train_one_step(learner) for learner in learners.values()]
    return concurrently(
        [one.for_each(select("left")).for_each(train[0]), other.for_each(select("left"))]
    ).for_each(train[1])


def misspelled(learners: Learners) -> Flow:
    flow = rollouts(learners).for_each(select("left", "rigth"))
    for learner in learners.values():
        flow = flow.for_each(train_one_step(learner))
    return flow


@pytest.mark.parametrize(
    ("plan", "make", "message"),
    [
        (nothing, by_rows, "policies_plan '.*:nothing' returned None, expected a Flow"),
        (left_only, by_rows, r"takes no batches of policy right, .*replay\(learners\['right'\]\)"),
        (right_untrained, by_rows, "no operator trains policy right"),
        (right_unselected, by_unrolls, "no operator trains policy right"),
        (misspelled, by_unrolls, "selects 'rigth', which is no policy that learns: .*'?right'?"),
    ],
)
def test_a_plan_that_leaves_a_policy_out_is_refused(plan: Any, make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        share_plan(make(), place(plan))


def twice(learners: Learners) -> Flow:
    return concurrently([selected(learners), apart(learners)])


def test_two_sources_of_the_same_batches_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rollouts\(left\) .*take each other's batches"):
        share_plan(by_unrolls(), place(twice))


def crossed(learners: Learners) -> Flow:
    left, right = learners.values()
    flows = [
        replay(one).for_each(train_one_step(other)) for one, other in ((left, right), (right, left))
    ]
    return concurrently(flows)


def test_a_batch_of_another_policy_is_refused_in_one_line() -> None:
    learners = by_rows()
    share_plan(learners, place(crossed))
    zeros = {name: rows(0) for name in learners}
    with pytest.raises(SurrealError) as caught:
        rehearse(for_policies(learners), learners, zeros)
    line = "train_one_step of policy right got a batch of policy left"
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_select_needs_a_name() -> None:
    with pytest.raises(ValueError, match="needs the name of a policy"):
        select()
