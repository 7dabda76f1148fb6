"""The promises about replay, one test for each."""

import inspect
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from session.config import Config
from session.config.sections import sections_of
from session.errors import UsageError
from session.loggerplex.log_client import Log
from session.tensorplex.metrics_client import TensorplexClient
from surreal_like import ExpTuple, Replay, TupleReplay, UniformReplay
from surreal_like.data.batch import make_batch
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.batch_requests import ReplayClient
from surreal_like.replay.batch_server import ReplayService
from tests.api.parts import MyReplay
from tests.api.planned import end_script, looking_on
from tests.api.stage import Stage, push_chunk
from tests.surreal_like.replay.chunks import chunk_of


def make_replay(config: Config, kind: type[Replay] = UniformReplay, **replay: Any) -> Any:
    config = config.copy()
    config.learner_config.algo.n_step = 1
    # Chunks of these tests have columns of their own.
    config.learner_config.replay.columns = {}
    for key, value in {"min_size": 4, "batch_size": 4, **replay}.items():
        config.learner_config.replay[key] = value
    return kind(**sections_of(config))


def of_cartpole(text: str, *, sequence: int = 1, first_id: int = 0) -> Chunk:
    """A chunk of rows as the run's environment gives them: a server takes no others."""
    chunk = chunk_of(text, sequence=sequence, first_id=first_id)
    columns = {name: c for name, c in chunk.columns.items() if not name.startswith("obs/")}
    shape = columns["step_type"].shape
    obs = np.zeros((*shape, 4), np.float32)
    chunk.columns = {**columns, "obs": obs, "action": columns["action"] % 2}
    return chunk


def serve(stage: Stage, replay: Replay) -> None:
    """Puts a replay of the test's on the stage."""
    if "ps" not in stage.frames:
        stage.start("ps")
    stage.start("replay-0", build=lambda context: ReplayService(context, replay))
    stage.service("replay-0")


# -- what an author writes -----------------------------------------------------------------------


def test_a_new_replay_extends_replay(config: Config) -> None:
    assert issubclass(UniformReplay, Replay)
    assert issubclass(TupleReplay, Replay)
    for kind in (UniformReplay, MyReplay):
        assert isinstance(make_replay(config, kind), Replay)


def test_what_is_inside_is_the_replay_s_own_affair(config: Config) -> None:
    class Buckets(TupleReplay):
        """Keeps ends apart from all else."""

        def __init__(self, **configs: Any) -> None:
            super().__init__(**configs)
            self.buckets: dict[bool, list[ExpTuple]] = {True: [], False: []}

        def insert(self, exp_tuple: ExpTuple) -> None:
            self.buckets[exp_tuple.done].append(exp_tuple)

        def sample(self, batch_size: int) -> list[ExpTuple]:
            return (self.buckets[True] * batch_size)[:batch_size]

    replay = make_replay(config, Buckets)
    replay.insert_chunk(chunk_of("FMMTFM"))
    assert replay.sample_columns(3)["dones"].tolist() == [1, 1, 1]


def test_insert_takes_a_chunk_and_that_of_a_tuple_replay_takes_a_tuple(config: Config) -> None:
    replay = make_replay(config)
    replay.insert(chunk_of("FMMT", "FMMM"))
    assert replay.statistics()["size"] == 8
    assert replay.statistics()["sampleable"] == 6  # neither LAST nor what has no successor
    mine = make_replay(config, MyReplay)
    mine.insert_chunk(chunk_of("FMMT", "FMMM"))
    assert len(mine.memory) == 6
    assert all(type(each) is ExpTuple for each in mine.memory)


def test_a_tuple_has_five_fields(config: Config) -> None:
    assert ExpTuple._fields == ("obs", "action", "reward", "done", "info")
    mine = make_replay(config, MyReplay)
    mine.insert_chunk(chunk_of("FMT"))
    first, second = mine.memory
    obs, obs_next = first.obs
    assert (obs["position"].tolist(), obs_next["position"].tolist()) == ([0, 0], [1, -1])
    assert (int(first.action), first.reward, first.done) == (0, 1.0, False)
    assert second.done is True
    assert second.info["discount"] == 0.0
    assert {"terminated", "truncated", "version", "extras"} < set(first.info)


def test_insert_evicts_what_there_is_no_room_for(config: Config) -> None:
    replay = make_replay(config, capacity=120, batch_size=1)
    for sequence in range(1, 8):
        replay.insert(chunk_of("F" + "M" * 19, sequence=sequence, first_id=20 * sequence))
    statistics = replay.statistics()
    assert statistics["size"] == 120
    assert statistics["evicted"] == 20
    mine = make_replay(config, MyReplay, capacity=10)
    mine.insert_chunk(chunk_of("F" + "M" * 30))
    assert [int(each.action) for each in mine.memory] == list(range(20, 30))


def test_an_evicted_row_is_in_no_other_place(config: Config) -> None:
    """What is evicted is gone: no other place has to be told."""
    replay = make_replay(config, capacity=120, batch_size=1)
    replay.insert(chunk_of("F" + "M" * 59))
    sample = replay.sample(4)
    size_bytes = replay.statistics()["size_bytes"]
    for sequence in range(2, 5):
        replay.insert(chunk_of("M" * 60, sequence=sequence, first_id=60 * sequence))
    assert replay.statistics()["size_bytes"] == size_bytes
    with pytest.raises(DataError):
        replay.aggregate_batch(sample)


def test_sample_chooses_rows_and_that_of_a_tuple_replay_gives_tuples(config: Config) -> None:
    replay = make_replay(config)
    replay.insert(chunk_of("FMMTFMMM"))
    sample = replay.sample(64)
    assert set(sample.numbers.tolist()) == {0, 1, 2, 4, 5, 6}
    assert sample.columns["weights"].tolist() == [1.0] * 64
    mine = make_replay(config, MyReplay)
    mine.insert_chunk(chunk_of("FMMTFMMM"))
    chosen = mine.sample(5)
    assert len(chosen) == 5
    assert all(type(each) is ExpTuple for each in chosen)


def test_evict_removes_rows_although_there_is_room(config: Config) -> None:
    mine = make_replay(config, MyReplay)
    mine.insert_chunk(chunk_of("F" + "M" * 24))
    assert mine.evict() == 12
    assert len(mine.memory) == 12


def test_eviction_can_be_scheduled(make_stage: Callable[[Config], Stage], config: Config) -> None:
    config = config.copy()
    config.session_config.replay.evict_interval = 0.2
    stage = make_stage(config)
    mine = make_replay(config, MyReplay)
    serve(stage, mine)
    push_chunk(stage, of_cartpole("F" + "M" * 24))
    stage.until(lambda: len(mine.memory) == 24)
    stage.until(lambda: len(mine.memory) == 12)
    at = stage.clock.now()
    stage.until(lambda: len(mine.memory) == 6)
    assert stage.clock.now() - at == pytest.approx(0.2, abs=0.01)


def test_sampling_starts_when_its_condition_holds(stage: Stage) -> None:
    mine = make_replay(stage.config, MyReplay)  # more than 5 tuples
    serve(stage, mine)
    context = stage.context("learner")
    client = ReplayClient(
        context.wire, context.clock, shards=["replay-0"], batch_size=2, batches_per_request=1
    )

    def came() -> int:
        client.tick()
        return client.waiting

    push_chunk(stage, of_cartpole("FMMM"))
    stage.until(lambda: len(mine.memory) == 3)
    for _ in range(200):
        came()
        stage.round()
    assert not mine.start_sample_condition()
    assert client.waiting == 0
    push_chunk(stage, of_cartpole("MMMM", sequence=2, first_id=4))
    stage.until(came)
    assert mine.start_sample_condition()
    uniform = make_replay(stage.config, min_size=6)
    uniform.insert(chunk_of("FMMMMM"))
    assert not uniform.start_sample_condition()
    uniform.insert(chunk_of("M", sequence=2))
    assert uniform.start_sample_condition()


def test_aggregate_batch_gathers_arrays_as_learn_expects_them(config: Config) -> None:
    for kind in (UniformReplay, MyReplay):
        replay = make_replay(config, kind)
        replay.insert_chunk(chunk_of("FMMTFMMU"))
        batch = replay.aggregate_batch(replay.sample(6))
        assert not any(isinstance(leaf, torch.Tensor) for leaf in batch.values())
        wired = make_batch(replay.sample_columns(6))
        assert set(wired) >= {"obs", "obs_next", "actions", "rewards", "dones", "discounts"}
        assert set(wired) >= {"weights", "indices", "extras"}
        assert wired.obs["position"].shape == (6, 2)
        np.testing.assert_array_equal(wired.obs_next["position"][:, 0], wired.actions + 1)


# -- attributes, configuration, the main entry ---------------------------------------------------


def test_log_records_what_the_replay_does(stage: Stage) -> None:
    stage.start("ps", "loggerplex")
    replay = make_replay(stage.config)
    serve(stage, replay)
    assert isinstance(replay.log, Log)
    replay.log.warning("rather full")
    path = stage.folder.logs / "replay-0.log"
    stage.until(lambda: path.exists() and "rather full" in path.read_text())


def test_tensorplex_takes_any_statistics(stage: Stage) -> None:
    stage.listen("tensorplex")
    stage.start("ps")
    replay = make_replay(stage.config)
    serve(stage, replay)
    assert isinstance(replay.tensorplex, TensorplexClient)
    replay.tensorplex.add_scalar("fullness", 0.25, 7)
    mine = stage.until(
        lambda: [r for r in stage.records("tensorplex") if r.get("tag") == "fullness"]
    )
    assert [(r["id"], r["value"], r["step"]) for r in mine] == [("replay/0", 0.25, 7)]


def test_what_has_room_is_not_evicted(config: Config) -> None:
    assert config.session_config.replay.evict_interval == 0.0
    replay = make_replay(config)
    replay.insert(chunk_of("F" + "M" * 24))
    assert replay.evict() == 0


def test_the_constructor_takes_three_keywords(config: Config) -> None:
    keywords = {"learner_config", "env_config", "session_config"}
    for kind in (Replay, UniformReplay, TupleReplay):
        assert set(inspect.signature(kind).parameters) == keywords
    replay = UniformReplay(**sections_of(config))
    assert replay.learner_config is config.learner_config


def test_start_threads_serves_in_the_background(script: Config) -> None:
    replay = make_replay(script)
    thread = replay.start_threads()
    assert thread.is_alive()
    with looking_on(script, "agent-0") as wire:
        push, batches = wire.push("replay-0.experience"), wire.dealer("replay-0.batches")
        deadline = time.monotonic() + 10
        while not push.send(of_cartpole("FMMTFMMM").to_message()):
            assert time.monotonic() < deadline
            # Or this thread takes the interpreter's lock back before the service wakes up.
            time.sleep(0.01)
        answer = batches.request("sample", {"batch_size": 8, "batches": 1})
        assert answer.arrays["rewards"].tolist() == [1.0] * 8
        counts = batches.request("counts").fields["counts"]
        assert counts["inserted"] == 8
    end_script(script)
    assert not thread.is_alive()


def test_without_a_planned_run_start_threads_says_what_to_do(config: Config) -> None:
    with pytest.raises(UsageError, match=r"surreal-like plan CONFIG\.yaml --format shell"):
        make_replay(config).start_threads()
