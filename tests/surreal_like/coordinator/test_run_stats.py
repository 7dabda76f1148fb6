"""The record of a run goes on over restarts, and never falls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.process.clock import CountedClock
from surreal_like.coordinator.run_stats import RunStats
from surreal_like.coordinator.stop_rule import Verdict
from surreal_like.experience.row_accounts import UNLEARNED


def config(**run: Any) -> Config:
    whole = BASE_CONFIG.copy()
    whole.algorithm = "dqn"
    whole.env_config.env_name = "gym:CartPole-v1"
    whole["run"] = {"started": 0.0, "first_started": 0.0, "seconds_before": 0.0} | run
    return whole


def counts(steps: int, *, size: int = 10) -> dict[str, Any]:
    sender = {
        "rows": steps + 2,
        "base": 0,
        "inserted": steps + 2,
        "dropped": 0,
        "holes": 0,
        "env_steps": steps,
        "episodes": steps // 10,
    }
    return {
        "replay-0/1": {
            "sampled": 4 * steps,
            "replayed": steps,
            "size": size,
            "sampleable": size,
            "bytes": 100 * size,
            "evicted": 0,
            "senders": {"agent-0/1": sender},
        }
    }


def test_a_restarted_record_counts_on(tmp_path: Path) -> None:
    one = RunStats(config(), CountedClock())
    one.add_counts(counts(100))
    one.add_episodes([{"return": 20.0, "length": 20, "metrics": {}}])
    one.iterations = 50
    one.save(tmp_path / "record.json", 50, 0)
    two = RunStats(config(), CountedClock())
    two.restore(tmp_path / "record.json", 30)
    line = two.line(30, 7, counts(100).values())
    assert (line["env_steps"], line["episodes"], line["iterations"]) == (100, 10, 50)
    assert line["iteration"] == 30
    assert line["repeated_iterations"] == 20
    assert line["train"]["mean_return_100"] == 20.0
    assert line["run_id"] == one.line(50, 7, []).pop("run_id")


def test_guests_stay_bounded_by_their_rows_after_a_restart(tmp_path: Path) -> None:
    one, two = (RunStats(config(), CountedClock()) for _ in range(2))
    one.save(tmp_path / "record.json", 0, 0)
    two.restore(tmp_path / "record.json", 0)
    [shard] = counts(0).values()
    own = {**shard["senders"]["agent-0/1"], "inserted": 40, "env_steps": 1_000_000, "guest": True}
    two.accounts.add_shard("replay-0/1", {**shard, "senders": {"agent-1000/1": own}})
    assert two.accounts.env_steps == 40


def episodes(mean: float, *, guest: bool, number: int = 100) -> list[dict[str, Any]]:
    mark = {"guest": True} if guest else {}
    return [{"return": mean, "length": 10, "metrics": {}, **mark}] * number


@pytest.mark.parametrize("own", [0, 50, 100])
def test_episodes_of_guests_are_shown_and_decide_nothing(tmp_path: Path, own: int) -> None:
    wanted = config()
    wanted.session_config.stop.update({"metric": "return/train", "above": 400.0})
    wanted.session_config.stop.eval_return = None
    record = RunStats(wanted, CountedClock())
    record.begin_task(0, {}, 0)
    record.add_episodes(episodes(7.0, guest=False, number=own))
    record.add_episodes(episodes(499.0, guest=True))
    # A goal of evaluations, whose time of training is reported.
    judge = record.judge
    judge._stop = {**judge._stop, "eval_return": 400.0}
    record.judge_training()
    assert judge.rolling is None
    assert record.verdict() is None
    assert record.user_metrics() == {}
    assert not record.task_episodes
    line, result = record.line(0, 0, []), record.result(Verdict("stopped", False, ""), 0)
    for shown in (line, result):
        assert shown["train"]["mean_return_100"] == (7.0 if own else None)
        assert shown["guests"]["mean_return_100"] == 499.0
    assert line["episodes_this_iter"] == 100 + own
    record.save(tmp_path / "record.json", 0, 0)
    again = RunStats(wanted, CountedClock())
    again.restore(tmp_path / "record.json", 0)
    assert again.line(0, 0, [])["guests"] == line["guests"]
    assert "guests" not in RunStats(wanted, CountedClock()).line(0, 0, [])


def test_numbers_of_files_are_finite_if_those_of_the_episodes_are() -> None:
    record = RunStats(config(), CountedClock())
    largest = 1.7e308
    for guest in (False, True):
        found = episodes(largest, guest=guest, number=30)
        record.add_episodes([{**each, "metrics": {"own": largest}} for each in found])
    for shown in (record.line(0, 0, []), record.result(Verdict("stopped", None, ""), 0)):
        json.dumps(shown, allow_nan=False)
        assert shown["train"]["mean_return_100"] == pytest.approx(largest)
        assert shown["guests"]["max_return_100"] == largest


def of_two_policies(left_version: int) -> RunStats:
    whole = config()
    whole["policies"] = {"left": {}, "right": {}}
    record = RunStats(whole, CountedClock())
    for name, version in (("left", left_version), ("right", 1)):
        record.policies[name].iteration = record.policies[name].version = version
        record.lag_of(name).add_publication(version, version)
    sender = {"base": 0, "dropped": 0, "holes": 0, "env_steps": 0, "episodes": 0}
    shard = counts(0)["replay-0/1"]
    for name, rows in (("left", 30), ("right", 12)):
        senders = {f"agent-0:{name}/1": {**sender, "rows": rows, "inserted": rows}}
        given = {**shard, "senders": senders, "agent_steps": rows - 1}
        record.add_counts({f"replay-{name}-0/1": given})
    return record


def test_each_policy_has_its_own_numbers(tmp_path: Path) -> None:
    one, two = of_two_policies(9), of_two_policies(9)
    one.lag_of("left").add_batch(np.array([1, 9]), 9)
    one.lag_of("right").add_batch(np.array([1, 1]), 1)
    line = one.line(0, 0, [])
    left, right = line["policies"]["left"], line["policies"]["right"]
    assert (left["iteration"], left["version"], left["agent_steps"]) == (9, 9, 29)
    assert (right["iteration"], right["version"], right["agent_steps"]) == (1, 1, 11)
    assert left["experience"]["inserted"] == 30
    means = [each["lag"]["mean_versions"] for each in (left, right, line)]
    assert means == [4.0, 0.0, 2.0]
    one.save(tmp_path / "record.json", 0, 0)
    two.restore(tmp_path / "record.json", 0)
    result = two.result(Verdict("stopped", None, ""), 0)
    means = [result["policies"][name]["lag"]["mean_versions"] for name in ("left", "right")]
    assert [*means, result["lag"]["mean_versions"]] == [4.0, 0.0, 2.0]


def test_a_run_with_one_policy_has_no_numbers_by_policy() -> None:
    record = RunStats(config(), CountedClock())
    assert "policies" not in record.line(0, 0, [])
    assert "lags" not in record.state(0, 0)


def plan_counts(items: int, timed: int) -> dict[str, Any]:
    operator = {"items": items, "rows": 8 * items, "timed": timed, "seconds": 0.5 * timed}
    return {"rows_taken": 8 * items, "rows_trained": 4 * items, "operators": {"print": operator}}


def test_counts_of_a_plan_are_sums_over_restarts(tmp_path: Path) -> None:
    one, two = (RunStats(config(), CountedClock()) for _ in range(2))
    one.plan = plan_counts(20, 0)
    shown = one.line(0, 0, [])["plan"]
    assert shown["operators"]["print"] == {"items": 20, "rows": 160, "call_seconds": None}
    one.save(tmp_path / "record.json", 0, 0)
    two.restore(tmp_path / "record.json", 0)
    two.plan = plan_counts(40, 1) | {"rows_taken": 5}
    for _ in range(2):
        assert two.line(0, 0, [])["plan"] == {
            "rows_taken": 165,
            "rows_trained": 240,
            "operators": {"print": {"items": 60, "rows": 480, "call_seconds": 0.5}},
        }


@pytest.mark.parametrize(
    ("written", "iteration", "iterations", "repeated"),
    [(50, 30, 50, 20), (50, 50, 50, 0), (50, 58, 58, 0)],
)
def test_updates_are_counted_whichever_of_checkpoint_and_record_is_older(
    tmp_path: Path, written: int, iteration: int, iterations: int, repeated: int
) -> None:
    one, two = (RunStats(config(), CountedClock()) for _ in range(2))
    one.iterations = written
    one.save(tmp_path / "record.json", written, 0)
    two.restore(tmp_path / "record.json", iteration)
    assert (two.iterations, two.repeated_iterations) == (iterations, repeated)


def test_a_record_without_a_file_begins_at_zero(tmp_path: Path) -> None:
    record = RunStats(config(), CountedClock())
    record.restore(tmp_path / "none.json", 0)
    assert record.line(0, 1, [])["env_steps"] == 0


def test_wall_seconds_of_earlier_parts_count() -> None:
    clock = CountedClock()
    for _ in range(1500):
        clock.advance()
    assert RunStats(config(), clock).wall_seconds == 1.5
    assert RunStats(config(seconds_before=10.0), clock).wall_seconds == 11.5


def test_users_numbers_have_mean_min_and_max_without_nan() -> None:
    record = RunStats(config(), CountedClock())
    for value in (1.0, float("nan"), 3.0):
        record.add_episodes([{"return": 0.0, "length": 1, "metrics": {"my/score": value}}])
    line = record.line(0, 1, [])
    assert line["metrics"] == {"my/score": {"mean": 2.0, "min": 1.0, "max": 3.0}}
    assert record.goal_metrics() == {"my/score": 2.0}
    json.dumps(line, allow_nan=False)


def test_the_learners_own_numbers_count_with_each_episode_that_ends() -> None:
    record = RunStats(config(), CountedClock())
    record.add_episodes([{"return": 0.0, "length": 1, "metrics": {"a": 1.0}}], {"b": 4.0})
    record.add_episodes([{"return": 0.0, "length": 1, "metrics": {"b": 1.0}}], {"b": 9.0})
    line = record.line(0, 1, [])
    assert line["metrics"]["a"] == {"mean": 1.0, "min": 1.0, "max": 1.0}
    # What comes with the episode is nearer to it.
    assert line["metrics"]["b"] == {"mean": 2.5, "min": 1.0, "max": 4.0}


def test_rates_do_not_read_zero_between_two_large_chunks() -> None:
    clock = CountedClock()
    record = RunStats(config(), clock)
    seen = []
    for second in range(60):
        for _ in range(1000):
            clock.advance()
        if second % 4 == 3:
            record.iterations += 40
        seen.append(record.line(0, 1, [])["rates"]["updates_per_second"])
    assert min(seen[4:]) == pytest.approx(10, rel=0.01)
    assert max(seen[4:]) == pytest.approx(10, rel=0.01)


def test_a_line_says_how_many_episodes_are_new() -> None:
    record = RunStats(config(), CountedClock())
    for new in (3, 0, 2):
        record.add_episodes([{"return": 1.0, "length": 1, "metrics": {}}] * new)
        line = record.line(0, 1, [])
        assert line["episodes_this_iter"] == new
        assert line["train"]["mean_return_100"] == 1.0


def test_only_the_last_hundred_episodes_count() -> None:
    record = RunStats(config(), CountedClock())
    record.add_episodes({"return": float(i), "length": i} for i in range(300))
    assert record.train()["mean_return_100"] == sum(range(200, 300)) / 100
    assert (record.train()["min_return_100"], record.train()["max_return_100"]) == (200.0, 299.0)


def test_the_result_has_every_key_of_its_schema() -> None:
    record = RunStats(config(), CountedClock())
    record.add_counts(counts(100))
    result = record.result(Verdict("stopped", True, "why"), 5)
    assert set(result) >= {
        *("status", "goal_met", "reason", "algorithm", "env_name", "seed", "wall_seconds"),
        *("env_steps", "episodes", "iterations", "eval", "best_eval", "train", "rates", "lag"),
        *("experience", "solved", "run_id"),
    }
    assert result["experience"] == {
        "pushed": 102,
        "inserted": 102,
        "dropped": 0,
        "unacked": 0,
        "holes": 0,
        "unknown_at_most": 0,
        "sampled": 400,
        "replayed": 100,
        "left_out": 0,
        "learned": 0,
        "lost": 0,
        "rolled_back": 0,
        **dict.fromkeys(UNLEARNED, 0),
    }
    json.dumps(result, allow_nan=False)
    assert "gateway" not in result
    empty = dict.fromkeys(("pushed", "inserted", "dropped", "unacked"), 0) | {"final": False}
    record.accounts.add_sender("gateway-0/1", empty | {"clients": {"sessions": 3}})
    assert record.result(Verdict("stopped", True, "why"), 5)["gateway"] == {"sessions": 3}


def test_a_run_started_by_hand_keeps_its_seconds_over_a_restart(tmp_path: Path) -> None:
    whole = config()
    del whole["run"]
    clock = CountedClock()
    one = RunStats(whole, clock)
    for _ in range(2000):
        clock.advance()
    one.save(tmp_path / "record.json", 0, 0)
    two = RunStats(whole, clock)
    two.restore(tmp_path / "record.json", 0)
    assert two.wall_seconds == 2.0


def test_what_a_killed_sender_may_have_held_is_bounded_by_chunks() -> None:
    record = RunStats(config(), CountedClock())
    for incarnation in (1, 2):
        record.accounts.add_sender(
            f"agent-0/{incarnation}",
            dict.fromkeys(("pushed", "inserted", "dropped", "unacked", "env_steps", "episodes"), 0)
            | {"final": False},
        )
    sender = BASE_CONFIG.session_config.sender
    chunk = sender.flush_iteration * BASE_CONFIG.env_config.num_envs
    assert record.experience()["unknown_at_most"] == sender.max_unacked_chunks * chunk
    # A gradient is one row of a chunk.
    columns = {"extras/gradient": {"type": "float32", "dim": [5]}}
    record._config.learner_config.gradient_columns = columns
    assert record.experience()["unknown_at_most"] == sender.max_unacked_chunks


def test_a_run_without_a_date_keeps_its_name_over_a_restart(tmp_path: Path) -> None:
    clock = CountedClock()
    undated = config()
    undated["run"] = {"launcher": "kubernetes"}
    one = RunStats(undated, clock)
    one.save(tmp_path / "record.json", 0, 0)
    clock.advance()
    two = RunStats(undated, clock)
    assert (two.run_id, two.restored_part) != (one.run_id, 1)
    two.restore(tmp_path / "record.json", 0)
    assert (two.run_id, two.restored_part) == (one.run_id, 1)


def test_the_return_of_training_is_a_metric_once_there_are_100_episodes() -> None:
    record = RunStats(config(), CountedClock())
    for number in range(101):
        assert ("return/train" in record.goal_metrics()) == (number >= 100)
        record.add_episodes([{"return": float(number), "length": 1, "metrics": {}}])
    # Of episodes 1 to 100.
    assert record.goal_metrics()["return/train"] == 50.5


def test_the_time_of_loaded_weights_and_own_counts() -> None:
    clock = CountedClock()
    one = RunStats(config(), clock)
    one.iterations = 9_500
    one.add_episodes([{"return": 1.0, "length": 1}])
    one.plan = {"rows_taken": 8, "operators": {"learn": {"items": 2}}}
    one.load({"env_steps": 300, "iterations": 12_000, "seconds": 7.5}, 1)
    one.plan = {"rows_taken": 4, "operators": {"learn": {"items": 1}}}
    assert one.state(1, 1)["plan"] == {"rows_taken": 12, "operators": {"learn": {"items": 3}}}
    one.iterations += 500
    assert one.iterations == 10_000
    assert one.times() == {"env_steps": 300, "iterations": 12_500, "seconds": 7.5}
    assert one.train()["mean_return_100"] is None
    # A second load begins from own counts, not from the first time.
    one.load({"env_steps": 100, "iterations": 10_500, "seconds": 2.5}, 2)
    assert one.times() == {"env_steps": 100, "iterations": 10_500, "seconds": 2.5}


def test_time_of_waiting_for_a_tuning_is_no_time_of_the_run(tmp_path: Path) -> None:
    clock = CountedClock()
    record = RunStats(config(trial="trial-000"), clock)
    for _ in range(10_000):
        clock.advance()
    record.add_held(4.0, real_seconds=5.0)
    assert record.wall_seconds == record.times()["seconds"] == 6.0
    line = record.line(0, 0, [])
    assert (line["held_seconds"], line["wall_seconds"]) == (5.0, 6.0)
    record.save(tmp_path / "record.json", 0, 0)
    # A restarted learner of the same part, and one of the next part.
    for part, seconds in ((1, 6.0), (2, 10.0)):
        later = RunStats(config(trial="trial-000", part=part), clock)
        later.restore(tmp_path / "record.json", 0)
        assert (later.held_seconds, later.wall_seconds) == (5.0, seconds)


# -- counters never fall ---------------------------------------------------------------------------

REPORTED = {
    "wall_seconds": 9.0,
    "env_steps": 500,
    "episodes": 50,
    "iterations": 80,
    "iteration": 70,
    "repeated_iterations": 10,
    "version": 12,
}


@pytest.mark.parametrize(
    ("before", "steps"),
    [
        # The senders of an earlier part do not report again: theirs are added to what comes.
        (9.0, [500, 540, 600]),
        # Those of this part do: nothing is counted twice, and the total waits for them.
        (8.0, [500, 500, 560]),
    ],
)
@pytest.mark.parametrize("recorded", [True, False])
def test_steps_never_fall_below_those_that_were_reported(
    tmp_path: Path, before: float, steps: list[int], recorded: bool
) -> None:
    one, two = (
        RunStats(config(), CountedClock()),
        RunStats(config(seconds_before=before, part=2), CountedClock()),
    )
    one.add_counts(counts(460))
    one.save(tmp_path / "record.json", 0, 0)
    if recorded:
        two.restore(tmp_path / "record.json", 0)
    two.reach(REPORTED, 0)
    key = "agent-0/1" if recorded else "agent-0/2"
    seen = [two.line(0, 1, [])]
    for more in (40, 100):
        reported = counts(460 + more if before < 9 or recorded else more)
        senders = reported["replay-0/1"]["senders"]
        senders[key] = senders.pop("agent-0/1")
        two.add_counts(reported)
        seen.append(two.line(0, 1, []))
    assert [line["env_steps"] for line in seen] == steps
    assert [line["episodes"] for line in seen] == [each // 10 for each in steps]


@pytest.mark.parametrize(
    ("restored", "known", "iterations", "repeated"),
    [(70, 0, 80, 10), (30, 0, 80, 50), (75, 0, 85, 10), (30, 85, 85, 0), (None, 0, 80, 10)],
)
def test_updates_never_fall_below_those_that_were_reported(
    restored: int | None, known: int, iterations: int, repeated: int
) -> None:
    record = RunStats(config(), CountedClock())
    record.iterations = known
    record.reach(REPORTED, restored)
    assert (record.iterations, record.repeated_iterations) == (iterations, repeated)
    assert record.restored_version == 12
    record.reach({}, restored)
    assert record.iterations == iterations


def test_what_is_not_reported_again_is_one_sender_of_the_result() -> None:
    record = RunStats(config(seconds_before=9.0), CountedClock())
    record.reach(REPORTED, 0)
    record.add_counts(counts(30))
    result = record.result(Verdict("stopped", None, ""), 0)
    assert {name: each["env_steps"] for name, each in result["senders"].items()} == {
        "agent-0": 30,
        "unknown": 500,
    }
    again = RunStats(config(seconds_before=9.0), CountedClock())
    again.accounts.restore(record.accounts.state())
    assert again.accounts.env_steps == 530


def test_episodes_of_the_task_are_counted_over_a_restart(tmp_path: Path) -> None:
    one, two = RunStats(config(), CountedClock()), RunStats(config(), CountedClock())
    one.begin_task(1, {"length": 1}, 3)
    old, new = ({"return": number, "metrics": {"task": number}} for number in (1, 2))
    one.add_episodes([old] * 70)
    one.begin_task(2, {"length": 2}, 5)
    one.add_episodes([old, {"return": 9.0}])
    one.add_episodes([new] * 256)
    one.save(tmp_path / "record.json", 0, 0)
    two.restore(tmp_path / "record.json", 0)
    two.add_episodes([new, old])
    assert (one.task["episodes"], two.task["episodes"]) == (256, 257)
    assert [each["return"] for each in two.task_episodes] == [2] * 100
