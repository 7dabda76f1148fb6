"""Plans of a user: found in a file, checked before the run, counted, resumed from the copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from session.config import Config
from session.config.named_code import find_plan
from session.errors import ConfigError
from surreal_like.algorithm.impala import Impala
from surreal_like.algorithm.ppo import PPOLearner
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from tests.runs.command import CARTPOLE, Train, clean
from tests.surreal_like.algorithm.unrolls import DISCRETE, configs, make_batch

PLANS = '''
from surreal_like.dataflow import (
    LocalReplay, Queue, concurrently, dequeue, experience, replay, rollouts, store, train_one_step
)


def fresh_and_again(learner):
    """Each batch of unrolls is learned from when it comes, and then two batches of older ones."""
    memory = LocalReplay(capacity=256, min_size=32)
    step = train_one_step(learner)
    fresh = rollouts(learner).for_each(store(memory)).for_each(step)
    again = replay(memory, batch_size=16).for_each(step)
    return concurrently([fresh, again], mode="round_robin", round_robin_weights=[1, 2])


def twice(learner):
    """Learns twice from each batch, in two branches."""
    one, other = experience(learner).duplicate(2)
    step = train_one_step(learner)
    return one.for_each(step).union(other.for_each(step))


def extended(learner):
    return learner.execution_plan().for_each(lambda item: item)


def listing(learner):
    return [rollouts(learner)]


def two_arguments(learner, other):
    return rollouts(learner)


def idle(learner):
    return rollouts(learner)


def lacking(learner):
    def read(batch):
        batch["gain"] = batch.gains
        return batch

    return rollouts(learner).for_each(read).for_each(train_one_step(learner))


def rows(learner):
    return replay(learner).for_each(train_one_step(learner))


def sending(learner):
    def send(item):
        learner.update_priorities(item.priorities)
        return item

    return rows(learner).for_each(send)


def alone(learner):
    return concurrently([rollouts(learner)])


def empty(learner):
    return dequeue(Queue(4)).for_each(train_one_step(learner))


def both(learner):
    return rollouts(learner).union(rollouts(learner)).for_each(train_one_step(learner))


def buggy(learner):
    return rollouts(learner).for_each(lambda batch: 1 / 0).for_each(train_one_step(learner))


def unbuilt(learner):
    return rollouts(learner).for_each(train_one_step(learner, passes=1 / 0))
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_plan.py"
    path.write_text(PLANS)
    return path


def resolved(place: str, algorithm: str = "impala") -> Config:
    words = [f"learner_config.execution_plan={place}"]
    return resolve(read_experiment(None, words, algorithm=algorithm, env_name="toy:chain"))


@pytest.mark.parametrize("name", ["fresh_and_again", "extended", "buggy", "unbuilt", "twice"])
def test_plans_that_may_work_are_accepted(file: Path, name: str) -> None:
    state = torch.get_rng_state()
    config = resolved(f"{file}:{name}")
    assert config.learner_config.execution_plan == f"{file}:{name}"
    assert config.fingerprint() != resolved("null").fingerprint()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("{file}:listing", "plan of ImpalaLearner is a list, expected a Flow"),
        (
            "{file}:two_arguments",
            "takes other arguments .missing .*, expected a function of .learner.",
        ),
        ("{file}:idle", "trains nothing: it needs train_one_step or apply_gradients"),
        ("{file}:lacking", "no 'gains'; it has .*mask.*; in read, operator 2 of the plan of"),
        ("{file}:rows", r"replay\(learner\), but .*FIFOReplay, .* use rollouts\(learner\)"),
        ("{file}:alone", "plan cannot be built: concurrently needs 2 flows or more, not 1"),
        (
            "{file}:empty",
            "all operators .* wait for each other: dequeue.queue. for an item in queue",
        ),
        ("{file}:both", "plan cannot be built: rollouts and rollouts .* use one source"),
        ("{file}:fresh_and_agian", "has no 'fresh_and_agian'.*fresh_and_again"),
        ("nothing.py:plan", "execution_plan 'nothing.py:plan': there is no such file"),
        ("no_such_package:plan", "'no_such_package:plan' cannot be imported"),
        ("my_plan", "is 'my_plan', expected package.module:Name or file.py:Name"),
        ("3", r"learner_config.execution_plan is 3"),
    ],
)
def test_others_are_refused_in_one_line(file: Path, place: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        resolved(place.format(file=file))
    assert "\n" not in str(refused.value)


def test_a_plan_that_forgets_the_priorities_of_its_loss_is_refused(file: Path) -> None:
    words = [f"learner_config.execution_plan={file}:rows"]
    prioritized = [*words, "learner_config.replay.type=PrioritizedReplay"]
    with pytest.raises(ConfigError, match=r"would draw all rows alike: .*update_priorities\(learn"):
        resolve(read_experiment(None, prioritized, algorithm="dqn", env_name="toy:chain"))
    acting = [*prioritized, "learner_config.replay.priority.initial=acting"]
    own = [f"learner_config.execution_plan={file}:sending", prioritized[1]]
    for accepted in (words, acting, own):
        resolve(read_experiment(None, accepted, algorithm="dqn", env_name="toy:chain"))


def test_state_that_no_checkpoint_can_hold_is_refused_before_a_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from surreal_like.algorithm.dqn import DQN\n"
        "class Counting:\n"
        "    def saveables(self):\n"
        "        return {**super().saveables(), 'count': 3}\n"
        "Mine = DQN.with_updates('Mine', learner_mixins=[Counting])\n"
    )
    with pytest.raises(
        ConfigError, match=r"saveables\(\) of .* has 'count' of class int, expected"
    ):
        resolve(read_experiment(None, [], algorithm=str(file), env_name="toy:chain"))


def test_the_ratio_of_new_and_old_batches_is_exact(file: Path) -> None:
    torch.manual_seed(0)
    learner: Any = Impala.learner(**configs(Impala))
    learner.next_batch = lambda: make_batch(DISCRETE)
    flow = find_plan(f"{file}:fresh_and_again")(learner)
    widths = [flow.pull().batch.rewards.shape[1] for _ in range(40)]
    # 32 streams are 8 batches of 4.
    assert widths[:8] == [4] * 8
    assert widths[8:38] == [16, 16, 4] * 10
    assert len(learner.pop_updates()) == 40


def train(folder: Path, file: Path, iterations: int, *words: str) -> Train:
    return Train(
        folder,
        CARTPOLE,
        f"learner_config.execution_plan={file}:twice",
        f"session_config.stop={{iterations: {iterations}, eval_episodes: 2}}",
        "learner_config.replay.min_size=300",
        "--quiet",
        *words,
    )


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("launcher", ["serial", "local"])
def test_a_run_with_a_plan_counts_and_resumes_from_its_copy(
    tmp_path: Path, file: Path, launcher: str
) -> None:
    with train(tmp_path / "run", file, 61, "--on", launcher) as first:
        assert first.wait(180) == 0, first.words
        # An odd number: the run ends between the two branches of one batch.
        assert first.result["iterations"] == 61
        assert clean(first.result)
        rows = first.result["experience"]["sampled"]
    assert (tmp_path / "run" / "code" / "my_plan.py").read_text() == PLANS
    file.unlink()
    more = "session_config.stop.iterations=80"
    with Train(tmp_path / "run", more, "--resume", "--on", launcher, "--quiet") as again:
        assert again.wait(180) == 0, again.words
        assert again.result["iterations"] == 80
        assert again.result["experience"]["sampled"] > rows
        assert clean(again.result)


@pytest.mark.parametrize(("passes", "minibatches"), [(1, 1), (500, 1), (3, 10**9)])
def test_a_plan_is_tried_with_one_pass(
    passes: int, minibatches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zeros have six rows, so there are six minibatches at most."""
    calls, loss = [], PPOLearner.loss

    def counting(self: PPOLearner, batch: Any) -> Any:
        calls.append(len(batch.rewards))
        return loss(self, batch)

    monkeypatch.setattr(PPOLearner, "loss", counting)
    numbers = {"num_sgd_iter": passes, "minibatches": minibatches}
    words = [f"learner_config.algo.{key}={number}" for key, number in numbers.items()]
    resolve(read_experiment(None, words, algorithm="ppo", env_name="toy:chain"))
    assert sum(calls) == 6
    assert len(calls) == min(minibatches, 6)
