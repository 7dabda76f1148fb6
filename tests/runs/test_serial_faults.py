"""Faults of whole runs in one thread; each run is played twice and must do the same."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import Any

import pytest

from session.folder import RunFolder
from surreal_like import train
from tests.runs.command import balanced, clean
from tests.runs.serial_faults import Ended, SerialRun, play, play_twice
from tests.session.tensorplex.reading import read

# A line of progress about every 20 rounds.
OFTEN: dict[str, Any] = {"session_config.learner.report_seconds": 0.02}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The same run without a fault, played once."""
    ended = play(tmp_path_factory.mktemp("undisturbed") / "run", lambda run: None, {})
    assert clean(ended.result)
    return ended


def killed(*names: str) -> list[str]:
    """The details of the events of these deaths."""
    return [f"{name}: killed by SIGKILL" for name in names]


def never_fall(ended: Ended) -> bool:
    """Whether every counter is at least what it was in the line before."""
    return all(
        after[counter] >= before[counter]
        for before, after in itertools.pairwise(ended.progress)
        for counter in ("env_steps", "episodes", "iterations", "frames", "version")
    )


def rows_stored(ended: Ended) -> int:
    """Rows in all shards at the end, as the learner has seen them last."""
    size: int = ended.progress[-1]["replay"]["size"]
    return size


def windows(run: SerialRun) -> list[Any]:
    """The chunks that each agent keeps."""
    return [run.service(name)._sending.window for name in ("agent-0", "agent-1")]


@pytest.mark.parametrize("keep", ["none", pytest.param("process", marks=pytest.mark.slow)])
def test_replay_dies_before_its_acks_arrive(tmp_path: Path, keep: str) -> None:
    """Rows that were acked are lost or kept; the others are sent again, and stored once."""

    def fault(run: SerialRun) -> tuple[int, int]:
        run.steps(200)
        ledger = run.service("replay-0")._intake.ledger
        agents = windows(run)

        def acks_pending() -> bool:
            account = ledger.account("agent-0", 1)
            return bool(account.handled > agents[0].acked)

        run.until(acks_pending)
        inserted = run.kill_and_wait("replay-0")._intake.ledger.totals()["inserted"]
        assert bool(inserted) == (keep == "process")
        # Acks that were under way may have arrived; the new shard has not sent any.
        lost = 0 if inserted else sum(window.acked_rows for window in agents)
        run.until(lambda: all(window.resent for window in agents))
        return lost, sum(window.resent for window in agents)

    ended = play_twice(tmp_path, fault, **{"session_config.replay.keep": keep})
    lost, resent = ended.seen
    assert bool(lost) == (keep == "none")
    assert resent > 0
    assert clean(ended.result)
    assert rows_stored(ended) == ended.result["experience"]["inserted"] - lost
    assert ended.result["experience"]["lost"] == lost
    assert ended.restarts == {"replay-0": 1}
    assert ended.events_of("lost") == killed("replay-0")


def test_replay_that_is_restarted_keeps_every_row(tmp_path: Path) -> None:
    def fault(run: SerialRun) -> None:
        run.steps(200)
        before = run.service("replay-0")
        run.launcher.restart("replay-0")
        run.until(lambda: run.service("replay-0") not in (before, None))

    ended = play_twice(tmp_path, fault, **{"session_config.replay.snapshot": True})
    assert clean(ended.result)
    assert rows_stored(ended) == ended.result["experience"]["inserted"]
    assert ended.result["experience"]["lost"] == 0
    assert ended.events_of("lost") == []
    assert ended.events_of("restart") == ["replay-0: as asked"]


def test_the_learner_dies_between_a_publication_and_its_checkpoint(tmp_path: Path) -> None:
    def fault(run: SerialRun) -> tuple[int, int, int]:
        worker = run.running("learner")._learners
        run.until(lambda: worker.learner.iteration >= 123)
        version, iteration = worker.learner.version, worker.learner.iteration
        after = run.kill_and_wait("learner")._learners
        assert after.learner.version >= version
        return version, iteration, after.learner.iteration

    often = {**OFTEN, "session_config.checkpoint.period": 100}
    ended = play_twice(tmp_path, fault, **often)
    version, iteration, restored = ended.seen
    assert restored == 100
    assert ended.events_of("restored") == ["iteration 100"]
    result = ended.result
    assert 0 < result["repeated_iterations"] <= iteration - restored
    assert result["iterations"] == result["iteration"] + result["repeated_iterations"]
    assert never_fall(ended)
    assert ended.progress[-1]["version"] > version
    assert clean(result)
    assert ended.restarts == {"learner": 1}


@pytest.mark.slow
def test_the_learner_that_is_restarted_repeats_nothing(tmp_path: Path) -> None:
    def fault(run: SerialRun) -> None:
        before = run.running("learner")
        run.until(lambda: before._learners.learner.iteration >= 123)
        run.launcher.restart("learner")
        run.until(lambda: run.service("learner") not in (before, None))

    ended = play_twice(tmp_path, fault)
    assert ended.result["repeated_iterations"] == 0
    assert ended.events_of("restart") == ["learner: as asked"]
    assert never_fall(ended)
    assert clean(ended.result)


@pytest.mark.slow
def test_a_new_parameter_server_has_the_newest_version_before_the_next_one(tmp_path: Path) -> None:
    def fault(run: SerialRun) -> int:
        run.steps(200)
        worker = run.service("learner")._learners
        store = run.kill_and_wait("ps")._store
        for _ in range(20):
            run.launcher.poll()
        assert store.newest().version == worker.learner.version
        run.launcher.scale("agent", 3)
        run.running("agent-2")
        return int(worker.learner.version)

    seldom = {"learner_config.parameter_publish.min_publish_interval": 100.0}
    ended = play_twice(tmp_path, fault, **seldom)
    assert ended.seen == 1
    acting = [each["detail"] for each in ended.events if each["component"] == "agent-2"]
    assert "version 1" in acting
    assert ended.events_of("lost") == killed("ps")
    assert clean(ended.result)


@pytest.mark.slow
def test_an_agent_dies_with_rows_that_it_has_not_sent(tmp_path: Path) -> None:
    """They are in no account, but bounded; the next incarnation has an account of its own."""

    def fault(run: SerialRun) -> int:
        run.steps(200)
        agent = run.service("agent-0")
        run.until(lambda: agent._sending.rows.writer._buffer.rows == 5)
        sent = agent._sending.window.pushed
        run.kill_and_wait("agent-0")
        return int(sent)

    ended = play_twice(tmp_path, fault, **OFTEN)
    rows = ended.result["experience"]
    assert balanced(ended.result)
    assert rows["holes"] == rows["unacked"] == 0
    assert rows["unknown_at_most"] > 0
    assert ended.result["senders"]["agent-0"]["pushed"] > ended.seen
    assert rows_stored(ended) == rows["inserted"]
    assert never_fall(ended)
    assert ended.restarts == {"agent-0": 1}


@pytest.mark.slow
def test_without_agents_the_learner_waits_and_then_goes_on(tmp_path: Path) -> None:
    def fault(run: SerialRun) -> int:
        run.steps(200)
        worker = run.service("learner")._learners
        run.kill("agent-0", "agent-1")
        run.until(lambda: run.service("agent-0") and run.service("agent-1"))
        # At once the first time; a quarter of a second passes before the second restart.
        run.kill("agent-0", "agent-1")
        for _ in range(100):
            run.launcher.poll()
        iteration = int(worker.learner.iteration)
        for _ in range(100):
            run.launcher.poll()
        assert worker.learner.iteration == iteration
        assert run.service("agent-0") is None
        return iteration

    ended = play_twice(tmp_path, fault)
    assert ended.result["iteration"] > ended.seen > 0
    assert balanced(ended.result)
    assert ended.result["rates"]["samples_per_insert"] < 2.5
    assert ended.restarts == {"agent-0": 2, "agent-1": 2}


@pytest.mark.slow
def test_an_evaluator_that_dies_changes_nothing_that_is_learned(
    tmp_path: Path, undisturbed: Ended
) -> None:
    def fault(run: SerialRun) -> None:
        evaluator = run.running("eval-0")
        run.until(lambda: evaluator._evaluation is not None and run.service("learner"))
        run.kill_and_wait("eval-0")

    ended = play_twice(tmp_path, fault, **{"session_config.evaluator.num": 1})
    assert ended.restarts == {"eval-0": 1}
    assert ended.result["eval"]["episodes"] > 0
    assert ended.parameters == undisturbed.parameters
    assert ended.result["senders"] == undisturbed.result["senders"]


@pytest.mark.slow
def test_metrics_and_logs_that_die_change_nothing_that_is_learned(
    tmp_path: Path, undisturbed: Ended
) -> None:
    def fault(run: SerialRun) -> None:
        run.steps(200)
        run.kill("tensorplex", "loggerplex")

    ended = play_twice(tmp_path, fault)
    assert ended.restarts == {"tensorplex": 1, "loggerplex": 1}
    assert ended.events_of("lost") == killed("tensorplex", "loggerplex")
    assert ended.parameters == undisturbed.parameters
    assert ended.result["senders"] == undisturbed.result["senders"]


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["none", "process"])
def test_one_of_two_shards_dies(tmp_path: Path, keep: str) -> None:
    """Its agent sends the unacked rows again, late priorities are ignored."""

    def fault(run: SerialRun) -> int:
        run.steps(300)
        window = windows(run)[1]
        run.until(lambda: not window.empty)
        lost = int(window.acked_rows)
        after = run.kill_and_wait("replay-1")
        run.until(lambda: after._ignored_priorities)
        return lost

    ended = play_twice(
        tmp_path,
        fault,
        **{
            "learner_config.replay.replay_shards": 2,
            # Priorities are under way in most rounds.
            "learner_config.replay.samples_per_insert": 8.0,
            "learner_config.replay.type": ("PrioritizedReplay"),
            "session_config.replay.keep": keep,
        },
    )
    assert clean(ended.result)
    assert ended.seen > 0
    rows, lost = ended.result["experience"], ended.seen if keep == "none" else 0
    assert rows_stored(ended) == rows["inserted"] - lost
    assert rows["lost"] == lost
    assert ended.restarts == {"replay-1": 1}


@pytest.mark.slow
def test_what_dies_before_its_first_turn_leaves_no_trace(
    tmp_path: Path, undisturbed: Ended
) -> None:
    names = ("agent-0", "replay-0", "learner", "ps")
    ended = play_twice(tmp_path, lambda run: run.kill(*names))
    assert ended.restarts == dict.fromkeys(names, 1)
    assert ended.events_of("lost") == killed(*names)
    assert ended.events_of("refused") == []
    assert ended.result["senders"] == undisturbed.result["senders"]
    assert ended.parameters == undisturbed.parameters


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("replay-0", marks=pytest.mark.slow),
        "agent-0",
        pytest.param("ps", marks=pytest.mark.slow),
    ],
)
def test_the_end_of_a_run_survives_a_death(tmp_path: Path, name: str) -> None:
    def fault(run: SerialRun) -> None:
        coordinator = run.running("learner").coordinator
        run.until(lambda: coordinator.verdict)
        run.kill(name)

    ended = play_twice(tmp_path, fault)
    assert (ended.result["status"], ended.result["reason"]) == (
        "stopped",
        "budget of 1200 env_steps used",
    )
    assert balanced(ended.result)
    assert ended.events_of("lost") == killed(name)


def test_too_many_deaths_end_the_run_with_the_first_one(tmp_path: Path) -> None:
    def fault(run: SerialRun) -> None:
        for _ in range(2):
            run.running("agent-1")
            run.kill_and_wait("agent-1")
        run.kill("agent-1")

    ended = play_twice(tmp_path, fault, **{"session_config.launcher.max_restarts": 2})
    result = ended.result
    assert result["status"] == "failed"
    assert result["reason"] == "agent-1: killed by SIGKILL (the first of 3 deaths)"
    ends = {name: end["exit_code"] for name, end in result["components"].items()}
    assert ends.pop("agent-1") == -signal.SIGKILL
    assert set(ends.values()) == {0}
    # The learner saved, and agent-0 said goodbye.
    assert ended.parameters
    assert balanced(result)


@pytest.mark.slow
def test_agents_come_and_go(tmp_path: Path) -> None:
    """Each that goes sends its last rows, and has an account of all."""

    def fault(run: SerialRun) -> None:
        run.steps(200)
        run.launcher.scale("agent", 3)
        run.running("agent-2")
        ledger = run.service("replay-0")._intake.ledger
        run.until(lambda: "agent-2/1" in ledger.senders())
        run.launcher.scale("agent", 1)
        run.until(lambda: all(ledger.account(f"agent-{k}", 1).ended for k in (1, 2)))

    ended = play_twice(tmp_path, fault)
    assert clean(ended.result)
    senders = ended.result["senders"]
    assert set(senders) == {"agent-0", "agent-1", "agent-2"}
    assert all(sender["env_steps"] > 0 for sender in senders.values())
    assert rows_stored(ended) == ended.result["experience"]["inserted"]
    assert ended.restarts == {}


@pytest.mark.slow
def test_an_agent_that_hangs_is_replaced(tmp_path: Path) -> None:
    def fault(run: SerialRun) -> None:
        run.steps(200)
        run.signal("agent-0", signal.SIGSTOP)
        run.until(lambda: run.launcher.components()["agent-0"]["restarts"])
        run.running("agent-0")

    quick = {"session_config.heartbeat.timeout": 0.25}
    ended = play_twice(tmp_path, fault, **quick)
    (lost,) = ended.events_of("lost")
    assert lost.startswith("agent-0: gave no sign of life for")
    assert balanced(ended.result)
    assert ended.result["experience"]["unacked"] == 0
    assert ended.restarts == {"agent-0": 1}


def points(folder: RunFolder) -> dict[str, list[int]]:
    """Each curve of each component -> the steps of its points."""
    events = read(folder.tensorboard)
    titles = events.Tags()["scalars"]
    return {title: [each.step for each in events.Scalars(title)] for title in titles}


@pytest.mark.slow
def test_no_curve_goes_back_when_parts_are_killed_and_the_run_is_resumed(tmp_path: Path) -> None:
    def fault(run: SerialRun) -> None:
        for number, name in enumerate(("replay-0", "agent-0", "learner"), 1):
            run.steps(250 * number)
            run.kill_and_wait(name)

    often = {"session_config.tensorplex.update_schedule": 0.01}
    play(tmp_path / "run", fault, {**OFTEN, **often})
    folder = RunFolder(tmp_path / "run")
    before = {name: len(steps) for name, steps in points(folder).items()}
    stop = "session_config.stop.env_steps=1800"
    train(launcher="serial", folder=folder.path, resume=True, overrides=[stop])
    after = points(folder)
    assert {name for name, steps in after.items() if steps != sorted(steps)} == set()
    assert {name for name in after if name.startswith("0 replay")} <= {
        name for name, steps in after.items() if len(steps) > before[name] > 5
    }


@pytest.mark.parametrize(
    "part", ["learner", pytest.param("agent-0", marks=pytest.mark.slow), "launcher"]
)
def test_a_run_that_an_error_ends_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Whatever raises: the last line and the result have the counts up to there."""

    def fault(run: SerialRun) -> None:
        learner = run.running("learner")
        run.until(lambda: learner._learners.learner.iteration >= 5)
        run.until(
            lambda: learner._learners.counts() and learner.coordinator.learners.learner.env_steps
        )

        def fail(*words: object) -> bool:
            raise RuntimeError("as asked")

        service = run.running(part) if part != "launcher" else None
        if service is None:
            run.launcher.kill()
        else:
            monkeypatch.setattr(service, "tick", fail)

    folder = RunFolder(tmp_path / "run")
    slowly = {"session_config.learner.report_seconds": 1000.0}
    ended = play(folder.path, fault, slowly, restarts=False)
    assert ended.result["status"] == ("interrupted" if part == "launcher" else "failed")
    for counts in (ended.result, ended.progress[-1]):
        assert counts["iterations"] >= 5
        assert counts["env_steps"] > 0
        assert counts["experience"]["pushed"] > 0
