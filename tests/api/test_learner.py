"""The promises about learners, one test for each."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from session.config import Config
from session.config.sections import sections_of
from session.loggerplex.log_client import Log
from session.tensorplex.metrics_client import TensorplexClient
from surreal_like import Learner
from surreal_like.algorithm.dqn import DQNAgent, DQNLearner
from surreal_like.data.batch import Batch
from surreal_like.data.parameters import Parameters
from surreal_like.learner.device_prefetch import AHEAD, DevicePrefetch
from surreal_like.network.flat import read_flat
from surreal_like.run.train import Run
from tests.api.parts import MyAgent, MyLearner
from tests.api.stage import Stage
from tests.surreal_like.learner.test_device_prefetch import StandIn


def make_learner(config: Config, kind: type[Learner] = MyLearner) -> Any:
    return kind(**sections_of(config))


def on_stage(stage: Stage, kind: type[Learner] = MyLearner) -> Any:
    """A learner of a running process."""
    learner = make_learner(stage.config, kind)
    learner.connect(stage.context("learner"))
    return learner


def fed(stage: Stage, kind: type[Learner] = MyLearner) -> Any:
    """A learner beside a replay that an agent fills."""
    stage.start("ps", "replay-0")
    learner = on_stage(stage, kind)
    stage.start("agent-0")
    if kind is DQNLearner:
        learner.publish_parameter(0)
    else:
        other = make_learner(stage.config, DQNLearner)
        learner.link._modules = other.module_dict  # what the library's agent expects
        learner.publish_parameter(0)
        learner.link._modules = learner.module_dict
        learner.link._rule.on_publication(-1.0, -1)
    return learner


def batch_of(learner: Any, stage: Stage) -> Batch:
    """The next batch, by hand."""

    def next_one() -> Any:
        learner.link.publisher.tick()
        learner.link.replay.tick()
        return learner.link.replay.next()

    return learner.link.to_batch(stage.until(next_one))  # type: ignore[no-any-return]


def some_batch(size: int = 16) -> Batch:
    rng = np.random.default_rng(0)
    return Batch(
        obs=torch.tensor(rng.normal(size=(size, 4)), dtype=torch.float32),
        obs_next=torch.tensor(rng.normal(size=(size, 4)), dtype=torch.float32),
        actions=torch.tensor(rng.integers(0, 2, size)),
        rewards=torch.ones(size),
        dones=torch.zeros(size),
        discounts=torch.full((size,), 0.97),
        weights=torch.ones(size),
        indices=torch.arange(size),
        extras={},
    )


# -- what an author writes -----------------------------------------------------------------------


def test_a_new_learner_extends_learner(config: Config) -> None:
    assert issubclass(DQNLearner, Learner)
    for kind in (MyLearner, DQNLearner):
        assert isinstance(make_learner(config, kind), Learner)


@pytest.mark.parametrize("kind", [MyLearner, DQNLearner])
def test_learn_is_one_update_on_a_batch(config: Config, kind: type[Learner]) -> None:
    learner = make_learner(config, kind)
    before = read_flat(learner.module_dict())
    metrics = learner.learn(some_batch())
    assert not np.array_equal(read_flat(learner.module_dict()), before)
    assert float(metrics["loss"]) > 0
    with pytest.raises(NotImplementedError):
        make_learner(config, Learner).learn(some_batch())


def test_the_batch_has_attributes_of_tensors(stage: Stage) -> None:
    batch = batch_of(fed(stage), stage)
    assert batch.obs is batch["obs"]
    assert batch.obs.shape == batch.obs_next.shape == (16, 4)
    for name in ("actions", "rewards", "dones", "discounts", "weights", "indices"):
        assert batch[name].shape == (16,), name
        assert batch[name].device == torch.device("cpu")
    assert batch.actions.dtype == torch.int64
    assert batch.rewards.dtype == batch.discounts.dtype == torch.float32
    # What multiplies the value of obs_next is 0 exactly where the task has ended.
    assert torch.equal(batch.discounts == 0, batch.dones == 1)
    assert batch.extras == {}
    with pytest.raises(AttributeError, match=r"it has .*rewards"):
        _ = batch.rewardz


def test_the_values_of_module_dict_are_published(stage: Stage) -> None:
    learner = on_stage(stage)
    subscriber = stage.context("ps").wire.subscriber("learner.parameters")
    learner.publish_parameter(1)

    def received() -> Any:
        learner.link.publisher.tick()
        return subscriber.receive()

    parameters = Parameters.from_message(stage.until(received))
    assert [entry.name for entry in parameters.manifest] == ["layer/weight", "layer/bias"]
    np.testing.assert_array_equal(parameters.flat, read_flat(learner.module_dict()))
    agent = MyAgent(**sections_of(stage.config), agent_id=0, agent_mode="training")
    agent.load(parameters)
    assert torch.equal(agent.layer.weight, learner.layer.weight)


def test_default_config_is_the_algorithm_s() -> None:
    assert DQNLearner.default_config() == DQNAgent.default_config()
    assert MyLearner.default_config().algo.learning_rate == 0.5
    assert Learner.default_config() == Config({})


def test_save_writes_the_parameters(config: Config, tmp_path: Path) -> None:
    learner, other = make_learner(config), make_learner(config)
    path = tmp_path / "parameters"
    learner.save(path)
    assert not torch.equal(other.layer.weight, learner.layer.weight)
    other.load(path)
    assert torch.equal(other.layer.weight, learner.layer.weight)


def test_the_best_score_makes_the_learner_save_what_was_played(stage: Stage) -> None:
    stage.start("ps", "replay-0", "learner", "eval-0")
    service = stage.service("learner")
    played = read_flat(service._learners.learner.module_dict())
    best = stage.until(lambda: service.coordinator.record.judge.best)
    evaluator = stage.frames.pop("eval-0")  # no further score
    evaluator.context.wire.close(0)
    stage.start("agent-0")
    stage.until(lambda: service._learners.learner.iteration > 3)
    # The learner has gone on; what is saved is what the evaluator has played.
    assert not np.array_equal(read_flat(service._learners.learner.module_dict()), played)
    other = make_learner(stage.config, DQNLearner)
    other.load(stage.folder.checkpoints / "best" / "params.safetensors")
    np.testing.assert_array_equal(read_flat(other.module_dict()), played)
    state = (stage.folder.checkpoints / "best" / "state.json").read_text()
    assert str(best["mean_return"]) in state


# -- what a script calls -------------------------------------------------------------------------


def test_learn_can_be_called_by_hand(config: Config) -> None:
    learner = make_learner(config, DQNLearner)
    losses = [float(learner.learn(some_batch())["loss"]) for _ in range(50)]
    assert losses[-1] < losses[0]


def test_publish_parameter_pushes_to_the_parameter_server(stage: Stage) -> None:
    stage.start("ps")
    store = stage.service("ps")._store
    learner = on_stage(stage)
    for iteration, message in ((1, ""), (2, "two")):
        assert learner.publish_parameter(iteration, *([message] if message else []))

        def arrived(iteration: int = iteration) -> Any:
            learner.link.publisher.tick()
            newest = store.newest()
            return newest if newest is not None and newest.iteration == iteration else None

        newest = stage.until(arrived)
        assert newest.info["message"] == message
        assert newest.version == iteration
        np.testing.assert_array_equal(newest.flat, read_flat(learner.module_dict()))


def test_update_tensorplex_reports_once_per_interval(stage: Stage) -> None:
    stage.listen("tensorplex")
    learner = on_stage(stage)
    for number in range(2500):
        learner.update_tensorplex({"my/value": float(number)}, global_step=number)
        stage.round()
    records = [r for r in stage.records("tensorplex") if "my/value" in r.get("values", {})]
    assert [record["step"] for record in records] == [1000, 2000]
    assert all(record["id"].startswith("learner/") for record in records)


def test_log_records_what_the_learner_does(stage: Stage) -> None:
    stage.start("ps", "loggerplex")
    learner = on_stage(stage)
    assert isinstance(learner.log, Log)
    learner.log.info("update %d", 3)
    learner.log.error("a bad one")
    path = stage.folder.logs / "learner.log"
    stage.until(lambda: path.exists() and "a bad one" in path.read_text())
    assert "update 3" in path.read_text()
    assert "ERROR" in path.read_text()


def test_tensorplex_may_be_called_directly(stage: Stage) -> None:
    stage.listen("tensorplex")
    learner = on_stage(stage)
    assert isinstance(learner.tensorplex, TensorplexClient)
    learner.tensorplex.add_histogram("weights", learner.layer.weight.detach().numpy(), 1)
    [record] = stage.until(lambda: [r for r in stage.records("tensorplex") if "tag" in r])
    assert (record["tag"], record["kind"]) == ("weights", "histogram")
    assert record["id"].startswith("learner/")


def test_the_constructor_takes_three_keywords(config: Config) -> None:
    keywords = {"learner_config", "env_config", "session_config"}
    assert set(inspect.signature(Learner).parameters) == keywords
    learner = DQNLearner(**sections_of(config))
    assert learner.learner_config is config.learner_config
    with pytest.raises(TypeError):
        Learner(config.learner_config, config.env_config, config.session_config)  # type: ignore[call-arg]


# -- the main entry ------------------------------------------------------------------------------


def turn_while_waiting(learner: Any, stage: Stage) -> None:
    """Lets the others go on whenever the learner's script waits."""
    learner.link.context.pulse = lambda: stage.rounds(0.02)


def test_fetch_iterator_gives_batches(stage: Stage) -> None:
    learner = fed(stage)
    turn_while_waiting(learner, stage)
    batches = []
    for batch in learner.fetch_iterator():
        batches.append(batch)
        # Schedules of agents go by the steps of all of them.
        if len(batches) >= 5 and learner.env_steps:
            break
    assert all(isinstance(batch, Batch) and len(batch.rewards) == 16 for batch in batches)
    assert not torch.equal(batches[0].indices, batches[1].indices)
    learner.link.context.stopping = True
    assert list(learner.fetch_iterator()) == []


def test_the_loop_publishes_every_batch_as_often_as_it_may(stage: Stage) -> None:
    learner = fed(stage, DQNLearner)
    turn_while_waiting(learner, stage)
    store = stage.service("ps")._store
    for i, batch in enumerate(learner.fetch_iterator()):
        learner.learn(batch)
        learner.publish_parameter(i, message="batch " + str(i))
        if i == 9:
            break
    # Here nothing limits it: one version before the loop, and batch 0 has no new number.
    assert learner.link.publisher.version == 10
    stage.until(lambda: store.newest().info["message"] == "batch 9")


@pytest.mark.parametrize(
    ("every", "interval", "published"), [(1, 0.0, 100), (10, 0.0, 10), (1, 0.02, 5), (50, 0.02, 2)]
)
def test_publishing_is_limited_by_updates_and_by_time(
    stage: Stage, every: int, interval: float, published: int
) -> None:
    limits = stage.config.learner_config.parameter_publish
    limits.every, limits.min_publish_interval = every, interval
    learner = on_stage(stage)
    for i in range(1, 101):
        learner.publish_parameter(i)
        stage.round()
    assert learner.link.publisher.version == pytest.approx(published, abs=1)


def test_what_came_too_early_is_published_when_the_interval_is_over(stage: Stage) -> None:
    stage.config.learner_config.parameter_publish.min_publish_interval = 0.05
    learner = on_stage(stage)
    assert learner.publish_parameter(1)
    assert not learner.publish_parameter(2, message="two")
    with torch.no_grad():
        learner.layer.weight.fill_(7.0)
    began = stage.clock.now()
    stage.until(lambda: learner.link.tick_publisher(learner))
    assert stage.clock.now() - began == pytest.approx(0.05, abs=0.01)
    newest = learner.link.publisher.newest
    assert (newest.version, newest.iteration, newest.info["message"]) == (2, 2, "two")
    np.testing.assert_array_equal(newest.flat, read_flat(learner.module_dict()))
    stage.rounds(0.2)
    assert not learner.link.tick_publisher(learner)
    assert learner.link.publisher.version == 2


def test_in_a_process_the_loop_is_the_library_s(run: Run) -> None:
    assert run.result["iterations"] == 60
    assert [line["iteration"] for line in run.progress()][-1] == 60


def test_batches_that_are_copied_ahead_are_those_that_replay_sent(stage: Stage) -> None:
    learner, device = fed(stage), StandIn()
    link = learner.link
    assert link.ahead is None, "on the CPU no thread copies"
    link.ahead = DevicePrefetch(link.replay.next, link.replay.leaves_out, device)
    said: list[tuple[str, str]] = []
    link.context.event = lambda kind, detail: said.append((kind, detail))

    def next_one() -> Batch | None:
        link.publisher.tick()
        link.replay.tick()
        batch = link.next_batch()
        return batch if isinstance(batch, Batch) else None

    for _ in range(2 * AHEAD):
        batch = stage.until(next_one)
        assert link.sampled is batch.origin
        for name in ("rewards", "indices", "version"):
            assert np.array_equal(batch[name].numpy(), batch.origin.columns[name]), name
        learner.update_priorities(batch.rewards)
    assert link.waiting >= link.replay.waiting
    assert [kind for kind, _ in said] == ["feed"]
    assert said[0][1].startswith("2 batches ahead: ")
