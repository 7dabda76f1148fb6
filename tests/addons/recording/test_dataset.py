"""Runs of one thread that learn from a recording: every row comes once, and is no step."""

from __future__ import annotations

import gc
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from main.cli import main
from session.errors import ConfigError, SurrealError, UsageError
from session.folder import RunFolder
from surreal_like import BC, load_policy
from surreal_like.addons.recording.dataset import adapt
from surreal_like.addons.recording.reader import Recording
from surreal_like.addons.recording.segments import Segment, list_segments
from surreal_like.addons.recording.writer import RecordingWriter
from surreal_like.coordinator import standstill
from surreal_like.data.columns import manifest_of
from surreal_like.experience.chunk import Chunk
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from tests.runs.command import CARTPOLE, Train, clean
from tests.runs.serial_faults import Ended, SerialRun, digest, play, play_twice
from tests.surreal_like.replay.chunks import chunk_of

pytestmark = pytest.mark.usefixtures("quick")

DATASET = "session_config.dataset.path"
RECORD = {"session_config.record.what": "all"}
UPDATES = 200


@dataclass(frozen=True)
class Made:
    """A recording of a run, and its rows."""

    path: Path
    rows: int
    ended: Ended

    def changes(self, **others: Any) -> dict[str, Any]:
        """Settings of a run that learns from it alone."""
        return {
            DATASET: str(self.path),
            "session_config.agent.num": 0,
            "session_config.stop": {"iterations": UPDATES},
            "learner_config.replay.samples_per_insert": 0,
            **others,
        }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    path = tmp_path_factory.mktemp("made") / "run"
    ended = play(path, lambda run: None, RECORD)
    rows = sum(chunk.size for _, chunk in Recording(path).chunks())
    return Made(path, rows, ended)


def feeds(run: SerialRun, name: str = "data-0") -> list[Any]:
    return list(run.service(name)._feeds) if run.service(name) else []


def wait_until_sent(run: SerialRun) -> None:
    """Until all is acked."""

    def sent() -> bool:
        found = feeds(run)
        return bool(found) and all(each.sent and each.sender.window.empty for each in found)

    run.until(sent)


def rows_by_id(run: SerialRun, column: str) -> list[Any]:
    """A column of the rows in replay, sorted."""
    storage = run.service("replay-0")._replay.storage
    return sorted(np.concatenate(storage.read(column)).tolist())


def recorded_rows(made: Made) -> list[Any]:
    """Observations of the recorded rows, sorted."""
    recorded = [chunk.columns["obs"] for _, chunk in Recording(made.path).chunks()]
    return sorted(np.concatenate([each.reshape(-1, *each.shape[2:]) for each in recorded]).tolist())


@pytest.mark.slow
def test_a_run_that_is_recorded_does_the_same_as_one_that_is_not(
    tmp_path: Path, made: Made
) -> None:
    plain = play(tmp_path / "plain", lambda run: None, {})
    assert made.ended == plain
    assert made.rows == plain.result["experience"]["inserted"]
    assert not (tmp_path / "plain" / "recording").exists()


@pytest.mark.slow
def test_every_row_of_a_recording_is_inserted_and_counts_as_no_step(
    tmp_path: Path, made: Made
) -> None:
    def look(run: SerialRun) -> tuple[list[Any], list[Any]]:
        wait_until_sent(run)
        account = feeds(run)[0].sender.account()
        return rows_by_id(run, "obs"), [account["pushed"], account["inserted"]]

    ended = play_twice(tmp_path, look, **made.changes())
    assert ended.seen == (recorded_rows(made), [made.rows, made.rows])
    result = ended.result
    rows = result["experience"]
    assert (rows["pushed"], rows["inserted"], rows["dropped"]) == (made.rows, made.rows, 0)
    assert clean(result, fewer_rows=False)
    counts = ("env_steps", "episodes", "frames", "iterations")
    assert [result[name] for name in counts] == [0, 0, 0, UPDATES]
    # No parameters of this run have acted.
    assert result["lag"]["mean_versions"] is None
    assert result["train"]["mean_return_100"] is None
    assert not {"recording_damaged", "rows_unacked"} & {each["event"] for each in ended.events}
    assert not ended.restarts


@pytest.mark.slow
def test_rows_come_beside_those_of_agents(tmp_path: Path, made: Made) -> None:
    changes = made.changes(**{"session_config.agent.num": 1})
    changes["session_config.stop"] = {"env_steps": 3000}
    ended = play(tmp_path / "run", wait_until_sent, changes)
    result, rows = ended.result, ended.result["experience"]
    assert result["env_steps"] >= 3000
    assert result["episodes"] > 0
    assert rows["pushed"] == rows["inserted"] > made.rows + result["env_steps"]
    # Those of the agent alone.
    assert result["lag"]["max_versions"] is not None
    assert result["train"]["mean_return_100"] is not None


@pytest.mark.slow
def test_two_shards_get_all_rows_together(tmp_path: Path, made: Made) -> None:
    def look(run: SerialRun) -> list[int]:
        wait_until_sent(run)
        run.until(lambda: all(each.sent for each in feeds(run, "data-1")))
        run.until(lambda: feeds(run, "data-1")[0].sender.window.empty)
        return [feeds(run, f"data-{n}")[0].sender.window.inserted for n in range(2)]

    changes = made.changes(**{"learner_config.replay.replay_shards": 2})
    ended = play(tmp_path / "run", look, changes)
    assert sum(ended.seen) == made.rows == ended.result["experience"]["inserted"]
    assert min(ended.seen) > 0.4 * made.rows


@pytest.mark.parametrize("late", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_sender_that_is_killed_goes_on_behind_what_replay_has(
    tmp_path: Path, made: Made, late: bool
) -> None:
    """Long after the end of its rows, too: a shard closes the accounts of those that have left."""

    def fault(run: SerialRun) -> tuple[dict[str, int], int]:
        run.until(lambda: feeds(run) and feeds(run)[0].sender.window.acked > 5)
        if late:
            wait_until_sent(run)
            clock = run.launcher.frames._clock
            since = clock.now()
            run.until(lambda: clock.now() > since + 1.5)
        assert late or not feeds(run)[0].sent
        run.kill_and_wait("data-0")
        wait_until_sent(run)
        totals = run.service("replay-0")._intake.ledger.totals()
        account = feeds(run)[0].sender.account()
        assert account["inserted"] == account["pushed"] == totals["inserted"]
        return totals, len(rows_by_id(run, "reward"))

    changes = made.changes(
        **{
            "session_config.heartbeat.timeout": 1.0,
            "session_config.sender.max_unacked_chunks": 3,
            "session_config.stop": {"iterations": 2700 if late else 800},
        }
    )
    ended = play(tmp_path / "run", fault, changes)
    totals, stored = ended.seen
    assert (totals["pushed"], totals["inserted"], stored) == (made.rows,) * 3
    assert ended.result["experience"]["inserted"] == made.rows
    assert ended.restarts == {"data-0": 1}


@pytest.mark.parametrize(
    ("keep", "late"),
    [
        ("process", False),
        pytest.param("process", True, marks=pytest.mark.slow),
        ("none", False),
        ("none", True),
    ],
)
def test_a_shard_that_is_killed_has_all_rows_again(
    tmp_path: Path, made: Made, keep: str, late: bool
) -> None:
    def fault(run: SerialRun) -> None:
        run.until(lambda: feeds(run) and feeds(run)[0].sender.window.acked > 5)
        if late:
            wait_until_sent(run)
        before = run.service("replay-0")._replay.statistics()
        replay = run.kill_and_wait("replay-0")._replay
        run.until(lambda: replay.statistics()["size"] == made.rows)
        wait_until_sent(run)
        assert rows_by_id(run, "obs") == recorded_rows(made)
        if late:
            # All chunks came in their order: as many rows have a next one as before.
            assert replay.statistics()["sampleable"] == before["sampleable"]
        account = feeds(run)[0].sender.account()
        assert account["inserted"] == account["pushed"] == made.rows

    changes = made.changes(
        **{"session_config.replay.keep": keep, "session_config.sender.max_unacked_chunks": 3}
    )
    ended = play(tmp_path / "run", fault, changes)
    # No step has been made, and nothing was lost in the end.
    assert (ended.result["env_steps"], ended.result["episodes"]) == (0, 0)
    rows = ended.result["experience"]
    assert rows["pushed"] == rows["inserted"] == made.rows
    assert rows["dropped"] == rows["unacked"] == rows["holes"] == rows["lost"] == 0


def test_a_shard_and_its_sender_are_killed_together(tmp_path: Path, made: Made) -> None:
    def fault(run: SerialRun) -> None:
        wait_until_sent(run)
        for _ in range(2):
            run.kill("replay-0", "data-0")
            run.until(lambda: not run.service("data-0") and not run.service("replay-0"))
            run.until(lambda: feeds(run) and feeds(run)[0].sender.window.acked > 5)
        wait_until_sent(run)
        assert len(rows_by_id(run, "reward")) == made.rows

    changes = made.changes(
        **{"session_config.replay.keep": "none", "session_config.sender.max_unacked_chunks": 3}
    )
    ended = play(tmp_path / "run", fault, changes)
    rows = ended.result["experience"]
    assert rows["pushed"] == rows["inserted"] == made.rows
    assert rows["lost"] == 0


# -- a run that is resumed ------------------------------------------------------------------------

SNAPSHOT = {"session_config.replay.snapshot": True, "session_config.sender.max_unacked_chunks": 3}


def stop_half_way(run: SerialRun) -> None:
    """Stops a run when some chunks were sent."""
    run.until(lambda: feeds(run) and feeds(run)[0].sender.window.acked > 5)
    assert not feeds(run)[0].sent
    # Else it may send all while the run ends.
    run.service("data-0").drain()
    run.launcher.stop()


@pytest.mark.parametrize("killed", [False, True])
def test_a_resumed_run_gets_the_rest_of_the_rows(tmp_path: Path, made: Made, killed: bool) -> None:
    changes = made.changes(**SNAPSHOT)
    first = play(tmp_path / "run", stop_half_way, changes).result["experience"]["inserted"]
    assert 0 < first < made.rows

    def look(run: SerialRun) -> tuple[list[Any], int, int]:
        wait_until_sent(run)
        if killed:
            run.kill_and_wait("data-0")
            wait_until_sent(run)
        account = feeds(run)[0].sender.account()
        return rows_by_id(run, "obs"), account["pushed"], account["inserted"]

    stop = {"session_config.stop": {"iterations": 2 * UPDATES}}
    ended = play(tmp_path / "run", look, {**changes, **stop}, part=2)
    assert ended.seen == (recorded_rows(made), made.rows - first, made.rows - first)
    rows = ended.result["experience"]
    assert rows["pushed"] == rows["inserted"] == made.rows
    assert rows["lost"] == 0


@pytest.mark.parametrize("before", ["agents", pytest.param("rows", marks=pytest.mark.slow)])
def test_a_resumed_run_gets_all_rows_of_a_recording_that_is_new_to_it(
    tmp_path: Path, made: Made, before: str
) -> None:
    changes = made.changes(**SNAPSHOT)
    if before == "agents":
        stop = {"session_config.stop": {"env_steps": 300}}
        first = play(tmp_path / "run", lambda run: None, {**SNAPSHOT, **stop})
    else:
        first = play(tmp_path / "run", stop_half_way, changes)
        shutil.copytree(made.path / "recording", tmp_path / "copy")
        changes[DATASET] = str(tmp_path / "copy")
    stored = first.result["experience"]["inserted"]

    def look(run: SerialRun) -> tuple[int, int]:
        wait_until_sent(run)
        return feeds(run)[0].sender.account()["inserted"], len(rows_by_id(run, "obs"))

    changes["session_config.stop"] = {"iterations": 1000}
    ended = play(tmp_path / "run", look, changes, part=2)
    assert ended.seen == (made.rows, stored + made.rows)


@pytest.mark.slow
@pytest.mark.parametrize("agents", [0, 1])
def test_only_a_run_with_agents_stands_still_without_steps(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch, agents: int
) -> None:
    monkeypatch.setattr(standstill, "SECONDS", 0.5)

    def fault(run: SerialRun) -> None:
        run.until(lambda: run.service("learner"))
        if agents:
            monkeypatch.setattr(run.running("agent-0"), "tick", lambda: False)

    stop = {"session_config.stop": {"seconds": 2}, "session_config.agent.num": agents}
    ended = play(tmp_path / "run", fault, made.changes(**stop))
    assert ended.result["iterations"] > 500
    said = ended.events_of("standstill")
    assert [each[:19] for each in said] == ["no environment step"] * len(said)
    assert bool(said) == bool(agents)


def test_damaged_chunks_are_left_out_and_named(tmp_path: Path, made: Made) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made.path / "recording", copy)
    (path,) = list_segments(copy / "replay-0")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    recording = Recording(copy)
    rows = sum(chunk.size for _, chunk in recording.chunks())
    ended = play(tmp_path / "run", wait_until_sent, made.changes(**{DATASET: str(copy)}))
    assert ended.result["experience"]["inserted"] == rows < made.rows
    assert ended.events_of("recording_damaged") == list(map(str, recording.damages))


SEVERAL: dict[str, Any] = {
    "env_config.env_name": "toy:multi_cartpole",
    "env_config.policy_mapping": {"cart_0": "left", "cart_1": "right"},
    "policies": {"left": {}, "right": {}},
    "session_config.stop": {"env_steps": 400},
}


@pytest.mark.slow
def test_each_policy_of_several_gets_its_own_rows(tmp_path: Path) -> None:
    first = play(tmp_path / "first", lambda run: None, SEVERAL | RECORD)
    path = tmp_path / "first"
    rows = {
        name: sum(chunk.size for _, chunk in Recording(path, name).chunks())
        for name in ("left", "right")
    }
    experience = {name: each["experience"] for name, each in first.result["policies"].items()}
    assert rows == {name: each["inserted"] for name, each in experience.items()}

    def look(run: SerialRun) -> dict[str, float]:
        wait_until_sent(run)
        sums = {}
        for name in rows:
            storage = run.service(f"replay-{name}-0")._replay.storage
            sums[name] = float(np.concatenate(storage.read("obs")).sum(dtype=np.float64))
        return sums

    changes = SEVERAL | Made(path, sum(rows.values()), first).changes()
    ended = play(tmp_path / "second", look, changes)
    found = {name: each["experience"] for name, each in ended.result["policies"].items()}
    assert {name: each["inserted"] for name, each in found.items()} == rows
    assert (ended.result["env_steps"], ended.result["episodes"]) == (0, 0)
    for name, total in ended.seen.items():
        recorded = [chunk.columns["obs"] for _, chunk in Recording(path, name).chunks()]
        assert total == pytest.approx(sum(each.sum(dtype=np.float64) for each in recorded))


@pytest.mark.slow
def test_a_policy_that_was_not_recorded_is_named(tmp_path: Path) -> None:
    path = tmp_path / "first"
    ended = play(path, lambda run: None, SEVERAL | RECORD)
    changes = SEVERAL | Made(path, 0, ended).changes()
    others = {
        "policies": {"left": {}, "up": {}},
        "env_config.policy_mapping": {"cart_0": "left", "cart_1": "up"},
        "learner_config.replay.min_size": 64,
    }
    with pytest.raises(UsageError, match="has no policy up, it has left, right"):
        resolved(changes | others)


# -- what is refused before the start ---------------------------------------------------------


def resolved(changes: dict[str, Any], algorithm: str = "dqn", env: str = "toy:chain") -> Any:
    small = {"learner_config.model.hidden_sizes": [8], "learner_config.replay.batch_size": 8}
    if algorithm != "dqn":
        small = {}
        changes = {key: each for key, each in changes.items() if "samples_per" not in key}
    words = [f"{key}={json.dumps(each)}" for key, each in (small | changes).items()]
    return resolve(read_experiment(None, words, algorithm=algorithm, env_name=env))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"learner_config.replay.capacity": 1000}, r"of {rows} rows, but .*capacity is 1,000"),
        ({"learner_config.replay.min_size": 2000}, "min_size is 2,000, but .* begin at only "),
        ({"learner_config.replay.samples_per_insert": 4}, "samples_per_insert is 4, but no rows"),
        ({"learner_config.replay.age": {"max_versions": 3}}, "max_versions is 3, but "),
        (
            {"learner_config.algo.learning_rate": {"kind": "linear", "steps": 100}},
            r"learning_rate\.by is env_steps, but .*agent\.num is 0: .* set it to iterations",
        ),
        ({"session_config.stop": {"env_steps": 9}}, "stop.env_steps is 9, but .*agent.num is 0"),
        ({"session_config.agent.num": 1, "session_config.stop": {"env_steps": 9}}, ""),
        ({"session_config.agent.num": 1, "learner_config.replay.samples_per_insert": 4}, ""),
        ({"session_config.agent.num": 1, "learner_config.replay.min_size": 2000}, ""),
        ({DATASET: ""}, "agent.num is 0, so no rows would come: give session_config.dataset.path"),
    ],
    ids=str,
)
def test_settings_with_which_a_run_would_wait_for_ever_are_refused(
    made: Made, changes: dict[str, Any], said: str
) -> None:
    base = {"learner_config.replay.min_size": 100, "learner_config.replay.capacity": 10_000}
    changes = made.changes() | base | changes
    if not said:
        resolved(changes)
        return
    with pytest.raises(ConfigError, match=said.format(rows=f"{made.rows:,}")):
        resolved(changes)


def test_as_many_steps_as_are_awaited_are_enough(tmp_path: Path, made: Made) -> None:
    """A run begins to learn at the largest size that is not refused."""
    key = "learner_config.replay.min_size"

    def most() -> int:
        with pytest.raises(ConfigError) as caught:
            resolved(made.changes(**{key: made.rows, "learner_config.replay.capacity": 10_000}))
        said = r"begin at only ([\d,]+) of the.* set it to \1 or less"
        found = re.search(said, str(caught.value))
        assert found is not None
        return int(found[1].replace(",", ""))

    begins = most()
    assert 0.9 * made.rows < begins < made.rows
    ended = play(tmp_path / "run", wait_until_sent, made.changes(**{key: begins}))
    assert ended.result["iterations"] == UPDATES
    assert begins <= ended.progress[-1]["replay"]["sampleable"] < begins + 20


def test_plan_looks_at_a_recording_that_is_here(
    made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["plan", "--algorithm", "bc", "--env", "toy:chain", "session_config.stop.iterations=9"]
    key = "session_config.dataset.path"
    assert main([*words, f"{key}={made.path}"]) == 0
    assert f"rows from      {made.path}\n" in capsys.readouterr().out
    too_few = f"learner_config.replay.min_size={made.rows}"
    assert main([*words, f"{key}={made.path}", too_few]) == 2
    assert "samples begin at only" in capsys.readouterr().err
    assert main([*words, f"{key}={tmp_path / 'away'}"]) == 0
    assert "away, which is not there on this machine" in capsys.readouterr().out


def test_what_clones_has_no_agents(made: Made) -> None:
    config = resolved({"session_config.stop": {"iterations": 9}, DATASET: str(made.path)}, "bc")
    assert config.session_config.agent.num == 0
    assert config.learner_config.replay.samples_per_insert == 0


@pytest.mark.parametrize("name", ["train", "plan"])
def test_what_clones_asks_for_recorded_rows(
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [name, "--algorithm", "bc", "--env", "toy:chain", "session_config.stop.iterations=9"]
    assert main(words) == 2
    assert "no rows would come: give session_config.dataset.path" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_learn_counts_updates_where_no_agents_act(made: Made, tmp_path: Path) -> None:
    model = BC("toy:chain", overrides={DATASET: str(made.path)}, folder=tmp_path / "run")
    model.learn(30)
    assert model.num_timesteps == 30
    model.learn(20)
    result = RunFolder(tmp_path / "run").read_result()
    assert result is not None
    assert result["iterations"] == 50


@pytest.mark.parametrize(
    ("algorithm", "gives"),
    [("ppo", "unrolls"), ("impala", "unrolls"), ("pqn", "unrolls"), ("r2d2", "sequences")],
)
def test_what_learns_from_its_own_newest_rows_is_refused(
    made: Made, algorithm: str, gives: str
) -> None:
    with pytest.raises(ConfigError, match=f"but {algorithm} learns from {gives} of its own"):
        resolved(made.changes(), algorithm)


def test_rows_of_another_environment_are_refused_with_both_specs(made: Made) -> None:
    with pytest.raises(ConfigError, match=r"whose obs_spec is .*, but env_config\.obs_spec is "):
        resolved(made.changes(), env="gym:CartPole-v1")


def test_a_folder_without_a_recording_is_refused(tmp_path: Path, made: Made) -> None:
    with pytest.raises(SurrealError, match=f"{tmp_path} has no recording"):
        resolved(made.changes(**{DATASET: str(tmp_path)}))


@pytest.mark.parametrize("below", ["", "recording", "recording/replay-0"])
@pytest.mark.parametrize("key", [DATASET, "learner_config.replay.demos.path"])
def test_a_recording_that_still_grows_is_refused(
    tmp_path: Path, made: Made, key: str, below: str
) -> None:
    shutil.copytree(made.path, tmp_path / "run")
    path = tmp_path / "run" / below
    changes = made.changes(**{DATASET: "", "session_config.agent.num": 1, key: str(path)})
    run = RunFolder(tmp_path / "run")
    run.lock()
    try:
        said = f"{key} is {path}, but run {run} goes on and its recording still changes: wait"
        with pytest.raises(ConfigError, match=re.escape(said)):
            resolved(changes)
    finally:
        run.unlock()
    resolved(changes)


def test_a_recording_without_a_row_is_refused(tmp_path: Path, made: Made) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made.path, copy)
    changes = made.changes(**{DATASET: str(copy), "session_config.agent.num": 1})
    for path in copy.rglob("*.seg"):
        # Only the first record is left.
        segment = Segment(path)
        path.write_bytes(path.read_bytes()[: segment.heads[0].end + 1])
    with pytest.raises(ConfigError, match=r"has no rows to learn from: .*record 2 .* is cut"):
        resolved(changes)


def test_counting_rows_keeps_no_chunk(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording may be larger than the memory."""
    alive: list[int] = []
    read = Recording.chunks

    def chunks(recording: Recording) -> Iterator[Any]:
        for each in read(recording):
            alive.append(sum(isinstance(found, Chunk) for found in gc.get_objects()))
            yield each

    monkeypatch.setattr(Recording, "chunks", chunks)
    # What was there before is not looked through at each chunk.
    gc.freeze()
    try:
        resolved(made.changes())
    finally:
        gc.unfreeze()
    assert len(alive) > 2
    assert max(alive) - min(alive) <= 1


def test_other_bounds_are_no_other_rows(tmp_path: Path, made: Made) -> None:
    specs = Recording(made.path).specs
    obs = {**specs["obs_spec"], "low": -7.0, "high": 7.0}
    zeros = np.zeros((400, *obs["dim"]), obs["type"])
    with RecordingWriter(tmp_path / "r", obs_spec=obs, action_spec=specs["action_spec"]) as writer:
        writer.add(zeros, np.zeros(399, int), np.zeros(399), terminated=True)
    resolved(made.changes(**{DATASET: str(tmp_path / "r"), "learner_config.replay.min_size": 10}))


def test_what_steps_no_environment_needs_none(tmp_path: Path) -> None:
    specs: dict[str, Any] = {
        "obs_spec": {"type": "float32", "dim": [3]},
        "action_spec": {"type": "continuous", "dim": [2], "low": [-1.0, -2.0], "high": [1.0, 2.0]},
    }
    rng = np.random.default_rng(1)
    with RecordingWriter(tmp_path / "logs", **specs) as logs:
        logs.add(rng.normal(size=(301, 3)), rng.normal(size=(300, 2)), np.ones(300))
    changes = {DATASET: str(tmp_path / "logs"), "session_config.evaluator.num": 0}
    folder = tmp_path / "run"
    model = BC("a robot of our own", overrides=changes, launcher="serial", folder=folder)
    model.learn(20)
    result = RunFolder(folder).read_result()
    assert result is not None
    assert (result["iterations"], result["env_steps"]) == (20, 0)
    action, _ = load_policy(folder)(np.zeros(3, np.float32))
    assert action.shape == (2,)


# -- chunks of the new sender -------------------------------------------------------------------


def adapted(chunks: list[Chunk], columns: Any = None) -> list[Chunk]:
    return list(adapt(iter(chunks), columns or manifest_of(chunks[0].columns, axes=2)))


def test_streams_go_on_only_where_no_chunk_is_missing() -> None:
    a1, a2, a4 = (chunk_of("MM", "MM", sequence=n, streams=[3, 7]) for n in (1, 2, 4))
    b1 = chunk_of("MM", sender="agent-1", streams=[3])
    b2 = chunk_of("MM", sender="agent-1", streams=[3], sequence=2)
    found = [each.streams for each in adapted([a1, b1, a2, b2, a4])]
    assert found[0] == found[2]
    assert found[1] == found[3]
    assert len({*found[0], *found[1], *found[4]}) == 5


def test_streams_end_with_a_tail_and_with_an_incarnation() -> None:
    first = chunk_of("MM", tail=True)
    found = adapted([first, chunk_of("MM", sequence=2), chunk_of("MM", incarnation=2)])
    assert len({each.streams[0] for each in found}) == 3
    assert [each.tail for each in found] == [True, False, False]


def test_rows_of_the_overlap_episodes_and_steps_are_left_out() -> None:
    chunk = chunk_of("FMT", "FMM")
    chunk.overlap, chunk.env_steps, chunk.episodes = 1, 50, 3
    chunk.finished = [{"return": 1.0, "length": 2, "metrics": {}}]
    chunk.lead_in = {"obs/image": chunk.columns["obs/image"][:1]}
    (found,) = adapted([chunk])
    assert found.shape == (2, 2)
    assert (found.overlap, found.env_steps, found.finished, found.lead_in) == (0, 0, [], {})
    assert not found.columns["version"].any()
    np.testing.assert_array_equal(found.columns["action"], chunk.columns["action"][:2])


def test_only_the_columns_that_replay_keeps_are_sent() -> None:
    chunk = chunk_of("FMT")
    columns = manifest_of(chunk.columns, axes=2)
    wanted = {name: each for name, each in columns.items() if not name.startswith("extras")}
    (found,) = adapted([chunk], wanted)
    assert found.columns.keys() == wanted.keys()
    with pytest.raises(ConfigError, match="needs the column extras/goal, which the recording"):
        adapted([chunk], {**columns, "extras/goal": columns["reward"]})


# -- by the command -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_cartpole_learns_the_same_twice_from_a_recording(tmp_path: Path) -> None:
    words = (CARTPOLE, "--on", "serial", "--quiet", "--seed", "3")
    stop = "session_config.stop={env_steps: 3000, eval_episodes: 5}"
    with Train(tmp_path / "first", *words, stop, "session_config.record.what=all") as first:
        assert first.wait(200) == 0, first.words
    rows = first.result["experience"]["inserted"]
    alone = (
        "session_config.agent.num=0",
        f"session_config.dataset.path={tmp_path / 'first'}",
        "learner_config.replay.samples_per_insert=0",
        "session_config.stop={iterations: 600, eval_episodes: 5}",
    )
    digests = set()
    for name in "ab":
        with Train(tmp_path / name, *words, *alone) as train:
            assert train.wait(200) == 0, train.words
        result = train.result
        assert result["experience"]["pushed"] == result["experience"]["inserted"] == rows
        assert (result["env_steps"], result["episodes"], result["iterations"]) == (0, 0, 600)
        assert result["eval"]["episodes"] == 5
        digests.add(digest(train.folder))
    assert len(digests) == 1
