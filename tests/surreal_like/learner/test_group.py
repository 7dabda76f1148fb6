"""Several learners that are one: the same parameters as one learner, and the same on all ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from session.errors import RunError
from session.process.periodic import Every
from surreal_like.algorithm.ddpg import DDPG
from surreal_like.algorithm.dqn import DQN, DQNLearner
from surreal_like.algorithm.impala import Impala
from surreal_like.algorithm.ppo import PPO
from surreal_like.algorithm.sac import SAC
from surreal_like.algorithm.td3 import TD3
from surreal_like.data.batch import Batch, Sampled, make_batch
from surreal_like.data.group import Group, group
from surreal_like.dataflow import NOT_READY, Flow, Loss, concurrently
from surreal_like.dataflow.items import axis_in, axis_of, columns_of
from surreal_like.learner.group_leader import GroupLost, RankEnded
from surreal_like.learner.group_member import Member
from surreal_like.learner.joint import share_plan
from surreal_like.learner.learner import Learner
from surreal_like.learner.operators import train_one_step
from surreal_like.learner.sources import experience
from surreal_like.network.distribution import Gaussian
from tests.polling import until
from tests.surreal_like.algorithm import test_dqn, transitions, unrolls
from tests.surreal_like.learner.ranks import POLICY, Learners, Ranks, feed, play_context, ranks

UPDATES = 50


def cat(batches: list[Batch]) -> Batch:
    """One batch of several, along the axis of rows or streams."""
    axis, columns = axis_of(batches[0]), [columns_of(each) for each in batches]
    whole = {n: torch.cat([c[n] for c in columns], axis_in(x, axis)) for n, x in columns[0].items()}
    return with_origin(make_batch(whole))


def with_origin(batch: Batch) -> Batch:
    columns = {n: x.numpy() for n, x in columns_of(batch).items()}
    batch.origin = Sampled(columns, 0, 7, {}, None, (5.0, 1.0, 20.0), (0, 0))
    return batch


def rows(seed: int) -> Batch:
    torch.manual_seed(seed)
    batch = test_dqn.make_batch(size=8)
    return with_origin(make_batch(dict(batch)))


def continuous_rows(seed: int) -> Batch:
    return cat([transitions.make_transitions(4 * seed + k) for k in range(2)])


def streams(seed: int) -> Batch:
    return cat([unrolls.make_batch(unrolls.DISCRETE, seed=4 * seed + k) for k in range(2)])


def single_steps(seed: int) -> Batch:
    """Unrolls of one step: the rows of the whole are those of the ranks one after the other."""
    batch = cat([unrolls.make_batch(unrolls.DISCRETE, seed=4 * seed + k) for k in range(8)])
    columns = {n: x[:2] if len(x) == unrolls.T + 1 else x[:1] for n, x in columns_of(batch).items()}
    return with_origin(make_batch(columns))


def learner_of(algorithm: Any, configs: Any) -> Learner:
    torch.manual_seed(0)
    made: Learner = algorithm.learner(**configs)
    return made


RMS = {"optimizer": {"rule": "rmsprop_tf", "epsilon": 0.1}}
Make = Callable[[], Learner]
SAME: dict[str, tuple[Make, Callable[[int], Batch], float]] = {
    "dqn": (lambda: learner_of(DQN, test_dqn.configs()), rows, 1e-6),
    "dqn, double and prioritized": (
        lambda: learner_of(
            DQN, test_dqn.configs(learner={"replay": {"type": "PrioritizedReplay"}}, double=True)
        ),
        rows,
        1e-6,
    ),
    "sac": (lambda: learner_of(SAC, transitions.options(SAC)), continuous_rows, 1e-6),
    "ddpg": (lambda: learner_of(DDPG, transitions.options(DDPG)), continuous_rows, 1e-6),
    "ddpg, near the rows": (
        lambda: learner_of(DDPG, transitions.options(DDPG, bc_weight=2.5)),
        continuous_rows,
        1e-6,
    ),
    "impala, adam": (lambda: learner_of(Impala, unrolls.configs(Impala)), streams, 1e-6),
    "impala, rmsprop": (lambda: learner_of(Impala, unrolls.configs(Impala, **RMS)), streams, 1e-6),
    "ppo, whole batches": (
        lambda: learner_of(PPO, unrolls.configs(PPO, minibatches=1)),
        streams,
        1e-5,
    ),
    "ppo, minibatches": (lambda: learner_of(PPO, unrolls.configs(PPO)), single_steps, 1e-5),
    "ppo, advantages per minibatch": (
        lambda: learner_of(
            # Parts of four rows: a rank has none in some of them.
            PPO,
            unrolls.configs(PPO, normalize_advantages_per="minibatch", minibatches=8),
        ),
        single_steps,
        1e-5,
    ),
}


@pytest.fixture
def same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows have the same noise, so that a part has that of the whole."""

    def draw(self: Gaussian, generator: Any = None) -> torch.Tensor:
        return self.mean + self.log_std.exp() * torch.linspace(-0.5, 1.0, self.mean.shape[-1])

    monkeypatch.setattr(Gaussian, "draw", draw)


MODEL = {"hidden_sizes": [8], "normalize_obs": True}
SCALED = {"model": {**MODEL, "normalize_values": True}}
MEMORY = {"model": {**MODEL, "memory": "lstm", "memory_size": 8}}
RND = {"parts": [{"part": "rnd", "args": {"features": 4, "hidden_sizes": [8]}}]}
ENTROPY = {"entropy_target": {"value": 0.7, "learning_rate": 0.5}}
CATEGORICAL = {"kind": "categorical", "atoms": 5, "v_min": -5.0, "v_max": 5.0}


def acted(seed: int) -> Batch:
    """Unrolls of an agent with a memory."""
    agent = PPO.agent(**unrolls.configs(PPO, learner=MEMORY), agent_id=0, agent_mode="training")
    return cat([unrolls.acted_batch(agent, seed=4 * seed + k) for k in range(2)])


def ppo(learner: Any = None, **algo: Any) -> Make:
    return lambda: learner_of(PPO, unrolls.configs(PPO, learner=learner, **algo))


def dqn(learner: Any = None, **algo: Any) -> Make:
    return lambda: learner_of(DQN, test_dqn.configs(learner=learner, **algo))


ALIKE: dict[str, tuple[Make, Callable[[int], Batch]]] = {
    "noisy, categorical, prioritized": (
        dqn(
            {"model": {**MODEL, "noisy": 0.5}, "replay": {"type": "PrioritizedReplay"}},
            distribution=CATEGORICAL,
            normalize_rewards=True,
        ),
        rows,
    ),
    "dqn with a bonus": (dqn({"model": MODEL, **RND}, n_step=1), rows),
    "sac": (
        lambda: learner_of(SAC, transitions.options(SAC, learner={"model": MODEL})),
        continuous_rows,
    ),
    "td3": (
        lambda: learner_of(TD3, transitions.options(TD3, learner={"model": MODEL})),
        continuous_rows,
    ),
    "ppo": (
        ppo(
            {**SCALED, **RND},
            kl={"coefficient": 0.2, "target": 0.01, "stop": 0.02},
            adaptive_learning_rate={"kl": 0.01},
            normalize_rewards=True,
            learning_rate=unrolls.constant(0.01),
            **ENTROPY,
        ),
        streams,
    ),
    "ppo with a memory": (ppo(MEMORY, minibatches=3, num_sgd_iter=1), acted),
    "impala": (
        lambda: learner_of(Impala, unrolls.configs(Impala, learner=SCALED, **ENTROPY)),
        streams,
    ),
}


def some(kinds: Mapping[str, Any], *quick: str) -> list[Any]:
    """Returns all kinds; those that are not quick are for the patient."""
    return [each if each in quick else pytest.param(each, marks=pytest.mark.slow) for each in kinds]


@pytest.mark.parametrize("kind", some(ALIKE, "dqn with a bonus"))
def test_all_that_a_checkpoint_has_is_the_same_on_all_ranks(kind: str) -> None:
    make, batch = ALIKE[kind]
    given = [batch(seed) for seed in range(8)]
    with ranks(lambda: {POLICY: make()}, size=2) as made:
        feed(made.learners[0][POLICY], itertools.chain.from_iterable(itertools.repeat(given)))
        # Other noise on each rank, as in a run.
        made.learners[1][POLICY].generator.manual_seed(1)
        for _ in range(200):
            made.learn()
        made.wait()
        first, second = (each[POLICY] for each in made.learners)
        assert first.iteration == 200
        saved = [
            {name: each.state_dict() for name, each in x.checkpointed().items()}
            for x in (first, second)
        ]
        assert equal(*saved)
        assert equal(tensors(first), tensors(second))
        assert not torch.equal(*(x.generator.get_state() for x in (first, second)))


def equal(one: Any, other: Any) -> bool:
    """True if nests of states are the same, bit by bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def tensors(learner: Learner) -> dict[str, torch.Tensor]:
    return {
        f"{key}/{name}": each
        for key, module in learner.module_dict().items()
        for name, each in module.state_dict().items()
    }


@pytest.mark.parametrize("kind", ["ppo, minibatches", "impala, adam"])
def test_a_batch_in_which_nothing_was_done_is_no_bad_update(kind: str) -> None:
    make, batch, _ = SAME[kind]
    idle = batch(0)
    idle["mask"] = torch.zeros_like(idle.mask)
    with ranks(lambda: {POLICY: make()}) as made:
        learner = made.learners[0][POLICY]
        before = {name: each.clone() for name, each in tensors(learner).items()}
        feed(learner, [with_origin(make_batch(columns_of(idle)))])
        made.learn()
        made.wait()
        assert learner.iteration == 1
        for learners in made.learners:
            assert learners[POLICY].optimizers["optimizer"].nan_updates == 0
        assert equal(tensors(learner), before)


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize(
    "kind",
    some(
        SAME,
        "dqn, double and prioritized",
        "sac",
    ),
)
def test_two_learners_on_halves_are_one_on_the_whole(kind: str) -> None:
    make, batch, within = SAME[kind]
    alone = make()
    feed(alone, map(batch, range(UPDATES)))
    for _ in range(UPDATES):
        alone.flow.pull()
    assert len(alone.pop_updates()) == UPDATES
    with ranks(lambda: {POLICY: make()}) as made:
        feed(made.learners[0][POLICY], map(batch, range(UPDATES)))
        # The order of minibatches is that of rank 0.
        made.learners[1][POLICY].generator.manual_seed(1)
        for _ in range(UPDATES):
            made.learn()
        made.wait()
        for learners in made.learners:
            for name, tensor in tensors(alone).items():
                torch.testing.assert_close(
                    tensors(learners[POLICY])[name], tensor, rtol=0, atol=within, msg=name
                )
        one, two = (getattr(each._link, "sent", []) for each in (alone, made.learners[0][POLICY]))
        # Where replay takes none, ranks do not exchange them.
        given = one if "prioritized" in kind else one[:0], two
        assert len(two) == (UPDATES if "prioritized" in kind else 0)
        for (_, expected), (_, found) in zip(*given, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def states(made: Ranks, policy: str = POLICY) -> list[dict[str, torch.Tensor]]:
    made.wait()
    return [tensors(learners[policy]) for learners in made.learners]


def spoiled(seed: int, reward: float) -> Batch:
    """A batch whose second half has this reward, which is not finite."""
    batch = rows(seed)
    batch["rewards"] = batch.rewards.clone()
    batch["rewards"][-1] = reward
    return batch


# Huber's loss of an infinite reward is infinite, its gradient is finite.
@pytest.mark.parametrize("reward", [np.nan, np.inf])
def test_what_is_not_finite_on_one_rank_is_skipped_by_all_and_counted_once(
    reward: float,
) -> None:
    with ranks(lambda: {POLICY: dqn()()}) as made:
        first, second = (each[POLICY] for each in made.learners)
        feed(first, [rows(0), spoiled(1, reward), rows(2)])
        made.learn()
        before = [{n: x.clone() for n, x in each.items()} for each in states(made)]
        made.learn()
        assert all(map(equal, before, states(made)))
        for learner in (first, second):
            assert learner.optimizers["optimizer"].nan_updates == 1
            assert learner.optimizers.skipped
        made.learn()
        assert not first.optimizers.skipped
        assert not equal(before[0], states(made)[0])
        assert equal(*states(made))


class Stops(DQNLearner):
    """Ends its passes over a batch by what differs from part to part."""

    def execution_plan(self) -> Flow:
        step = train_one_step(self, num_sgd_iter=3, until=lambda means: means["last"] > 4.0)
        return experience(self).for_each(step)

    def loss(self, batch: Batch) -> Loss:
        found = super().loss(batch)
        return Loss(found.total, {"last": batch.indices.max().float()})


def test_what_ends_the_passes_is_the_mean_over_all_ranks() -> None:
    def make() -> Learners:
        torch.manual_seed(0)
        return {POLICY: Stops(**test_dqn.configs())}

    with ranks(make) as made:
        # By their own rows, 0 to 3 and 4 to 7, one rank would go on and the other would not.
        feed(made.learners[0][POLICY], map(rows, range(2)))
        for _ in range(2):
            made.learn()
        assert equal(*states(made))
        assert made.learners[0][POLICY].iteration == 2


class Fails(DQNLearner):
    """Raises at a batch whose part has this number of a row."""

    bad = -1

    def loss(self, batch: Batch) -> Loss:
        if (batch.indices == self.bad).any():
            raise RuntimeError("bad row")
        return super().loss(batch)


@pytest.mark.parametrize("bad", [0, 7])
def test_an_error_of_one_rank_ends_the_update_of_all(bad: int) -> None:
    def make() -> Learners:
        torch.manual_seed(0)
        return {POLICY: Fails(**test_dqn.configs())}

    with ranks(make) as made:
        feed(made.learners[0][POLICY], map(rows, range(3)))
        for number in range(3):
            Fails.bad = bad if number == 1 else -1
            if number == 1:
                with pytest.raises(RuntimeError if not bad else RunError, match="bad row"):
                    made.learn()
            else:
                made.learn()
        assert equal(*states(made))
        assert made.learners[1][POLICY].optimizers["optimizer"].nan_updates == 0
        assert made.others[0].error is None


def test_a_plan_that_adds_more_on_one_rank_is_refused() -> None:
    def make() -> Learners:
        def adds(item: Any) -> Any:
            if not group().rank:
                group().sum(np.zeros(1), "something")
            return item

        torch.manual_seed(0)
        learner = DQN.learner(**test_dqn.configs())
        learner.__dict__["flow"] = learner.execution_plan().for_each(adds)
        return {POLICY: learner}

    with ranks(make) as made:
        feed(made.learners[0][POLICY], map(rows, range(2)))
        with pytest.raises(RunError, match="learner-1: has ended the turn without the sum of some"):
            made.learn()
        with pytest.raises(GroupLost, match="learner-1 has ended update 1 otherwise"):
            made.learn()


def test_parameters_that_ranks_change_by_themselves_are_found() -> None:
    with ranks(lambda: {POLICY: dqn()()}) as made:
        feed(made.learners[0][POLICY], map(rows, range(3)))
        made.learn()
        made.wait()
        with torch.no_grad():
            next(iter(made.learners[1][POLICY].module_dict()["q_network"].parameters())).add_(1e-6)
        made.leader._check_due = Every(calls=1, clock=made.context.clock.now)
        made.learn()
        with pytest.raises(GroupLost, match="the parameters of learner-1 are not those of the lea"):
            made.learn()


def test_a_rank_that_begins_anew_ends_the_group() -> None:
    with ranks(lambda: {POLICY: dqn()()}) as made:
        book = made.context.wire.addresses
        again = play_context(book, made.zmq, "learner-1", incarnation=2)
        stranger = play_context(book, made.zmq, "learner-9")
        members = [
            Member(again, 1, 2, torch.device("cpu")),
            Member(stranger, 9, 2, torch.device("cpu")),
        ]

        try:
            with pytest.raises(RankEnded, match="learner-9 is no rank of this group"):
                until(lambda: members[1].begin(), step=made.leader.tick)
            with pytest.raises(RankEnded, match="learner-1 has begun anew"):
                until(lambda: members[0].begin(), step=made.leader.tick)
        finally:
            for context in (again, stranger):
                context.wire.close(0)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_parts_with_and_without_rows(count: int) -> None:
    """Streams of random lengths, some ranks without a row, minibatches of fewer rows than ranks."""

    def batch_of(seed: int) -> Batch:
        batch = streams(seed % 7)
        rng = torch.Generator().manual_seed(seed)
        mask = (torch.rand(batch.mask.shape, generator=rng) < 0.15).float()
        if seed % 3 == 0:
            mask[:, unrolls.B :] = 0.0
        mask[0, 0] = 1.0
        batch["mask"] = mask
        return batch

    with ranks(lambda: {POLICY: ppo(num_sgd_iter=1, minibatches=3)()}) as made:
        feed(made.learners[0][POLICY], map(batch_of, range(count)))
        for _ in range(count):
            made.learn()
        assert equal(*states(made))
        assert made.learners[0][POLICY].iteration == count


def by_weights(learners: Mapping[str, Learner]) -> Flow:
    flows = [each.execution_plan() for each in learners.values()]
    return concurrently(flows, round_robin_weights=[2, 1])


@pytest.mark.parametrize(
    ("plan", "count"),
    [(None, 100), ("by_weights", 200), pytest.param(None, 4000, marks=pytest.mark.slow)],
)
def test_rank_0_decides_which_policy_learns(plan: str | None, count: int) -> None:
    def make() -> Learners:
        learners = {"left": dqn()(), "right": ppo(minibatches=1, num_sgd_iter=1)()}
        share_plan(learners, plan and f"{__name__}:{plan}")
        return learners

    def large(seed: int) -> Batch:
        return cat([rows(10 * seed + k) for k in range(10)])

    with ranks(make) as made:
        order = torch.Generator().manual_seed(3)

        def now_and_then(batch: Callable[[int], Batch]) -> Iterator[Any]:
            for seed in itertools.cycle(range(5)):
                while torch.randint(3, (1,), generator=order):
                    yield NOT_READY
                yield batch(seed)

        feed(made.learners[0]["left"], now_and_then(large))
        feed(made.learners[0]["right"], now_and_then(streams))
        for _ in range(count):
            made.learn()
        for policy in ("left", "right"):
            assert equal(*states(made, policy))
            assert made.learners[0][policy].iteration > count / 12


def test_one_learner_is_the_group_of_one() -> None:
    alone = group()
    assert (alone.rank, alone.size) == (0, 1)
    given = np.arange(3.0)
    assert alone.sum(given, "x") is given
    assert alone.join(given, "x") is given
    assert alone.gather(given, "x").tolist() == [[0.0, 1.0, 2.0]]
    assert alone.means({"kl": 2.5}, 7, "x") == {"kl": 2.5}
    assert type(alone) is Group
