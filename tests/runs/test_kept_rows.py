"""A replay that is killed loses no row that it has acked, and stores none twice."""

import json
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from surreal_like.addons.chaos.faults import KILL, Faults
from tests.polling import until
from tests.runs.command import CARTPOLE, Record, Train, balanced, clean, gone
from tests.runs.kept_rows import kill_often


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["UniformReplay", "PrioritizedReplay"])
def test_many_kills_under_load(kind: str, tmp_path: Path) -> None:
    found = kill_often(50, kind, tmp_path / "run", seed=3)
    assert found["sent"] > 0
    assert found["stored"] == found["sent"]
    assert (found["lost"], found["stored_twice"]) == (0, 0)


def strike_half_way(train: Train, faults: Faults, half: Path) -> bool:
    """Kills the shard if a snapshot is half written, and only then."""
    if not half.exists():
        return False
    pid = train.running_beat("replay-0").pid
    os.kill(pid, signal.SIGSTOP)
    if half.exists() and faults.strike(KILL, "replay-0"):
        return True
    os.kill(pid, signal.SIGCONT)
    return False


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_kill_during_a_snapshot_leaves_the_one_before(
    run_folder: Path, record_property: Record
) -> None:
    keep = "session_config.replay={keep: none, snapshot: true, snapshot_seconds: 0.5}"
    stop = "session_config.stop={eval_return: 501, seconds: 90}"
    with Train(run_folder, CARTPOLE, keep, stop) as train:
        train.steps(3000)
        first = train.until(lambda: train.events_of("snapshot")[3:])[0]["detail"].split()[-1]
        faults = Faults(train.folder, ())
        half = run_folder / "checkpoints" / "replay-0" / f".{first}.saving"
        until(partial(strike_half_way, train, faults, half), step=lambda: time.sleep(0.0005))
        until(faults.all_back)
        restored = train.until(lambda: train.events_of("restored"))
        train.learn(200)
        train.signal(signal.SIGINT)
        assert train.wait() == 130, train.words
    saved = [each["detail"].split()[0] for each in train.events_of("snapshot")]
    assert [each["detail"].split()[0] in saved[3:] for each in restored] == [True]
    assert not train.events_of("snapshot_bad")
    assert not half.exists()
    assert clean(train.result)
    record_property("recovery_seconds", {"replay-0": faults.happened[0].recovered_seconds})
    record_property("seen", f"went on with {restored[0]['detail']} of the snapshot before")


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_the_rows_of_a_snapshot_are_counted_after_a_kill_of_all(
    run_folder: Path, record_property: Record
) -> None:
    often = "session_config.replay={snapshot: true, snapshot_seconds: 0.2}"
    rows = "learner_config.replay={capacity: 200000, samples_per_insert: 0}"
    stop = "session_config.stop={{eval_return: 501, env_steps: {}}}"
    with Train(run_folder, CARTPOLE, often, rows, stop.format(10**8)) as train:
        train.steps(2000)
        # It writes no account from now on.
        os.kill(train.running_beat("learner").pid, signal.SIGSTOP)
        account = json.loads((train.folder.checkpoints / "learner" / "record.json").read_text())
        counted = sum(each["inserted"] for each in account["accounts"]["senders"].values())
        reached = train.line["env_steps"]

        def newer() -> list[str]:
            saved = (each["detail"].split()[0] for each in train.events_of("snapshot"))
            return [size for size in saved if int(size) > reached + 1000]

        train.until(newer)
        family = train.family()
        train.signal(signal.SIGKILL)
        train.wait()
        gone(family)
    with Train(run_folder, "--resume", stop.format(reached + 20000)) as again:
        assert again.wait(120) == 3, again.words
    (restored,) = again.events_of("restored")
    found, shard = again.result["experience"], again.line["replay"]
    assert (shard["evicted"], found["lost"]) == (0, 0)
    assert shard["size"] == found["inserted"]
    assert balanced(again.result)
    record_property("seen", f"{restored['detail']}, of which the account had {counted}")


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("keep", ["process", "none"])
def test_the_account_of_a_run_says_what_a_kill_has_cost(
    keep: str, run_folder: Path, record_property: Record
) -> None:
    words = (f"session_config.replay.keep={keep}", "session_config.stop={env_steps: 20000}")
    with Train(run_folder, CARTPOLE, *words) as train:
        train.steps(5000)
        before = train.line["replay"]["size"]
        record_property("recovery_seconds", train.strike(KILL, "replay-0"))
        assert train.wait(180) == 0, train.words
    rows = train.result["experience"]
    reported = train.events_of("rows_lost")
    if keep == "process":
        assert rows["lost"] == 0
        assert not reported
        (restored,) = train.events_of("restored")
        assert int(restored["detail"].split()[0]) >= before
    else:
        assert rows["lost"] >= before
        assert len(reported) == 1
        assert reported[0]["detail"].startswith("replay-0 ended, and with it ")
        assert "lost with a replay shard" in train.words
    assert clean(train.result)
