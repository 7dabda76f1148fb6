"""Who must be waited for at the end of a run."""

from typing import Any

import pytest

from session.config import Config
from surreal_like.coordinator.stop_rule import Shutdown, end_before, still_here


def shard(draining: bool = True, **goodbyes: bool) -> dict[str, Any]:
    senders = {
        key.replace("_", "-").replace("--", "/"): {"goodbye": g, "closed": False}
        for key, g in goodbyes.items()
    }
    return {"draining": draining, "senders": senders}


def never(sender: str) -> bool:
    """No leave message has arrived."""
    return False


def test_sums_of_closed_incarnations_are_not_waited_for() -> None:
    for goodbye in (False, True):
        counts = shard(agent_0__1=goodbye)
        counts["senders"]["agent-0/1"]["closed"] = True
        assert still_here({"r": counts}) == set()
        ending = Shutdown(0.0, timeout_seconds=5.0, shards=1)
        assert ending.over(1.0, {"r": counts}, never)


def test_a_replaced_incarnation_is_not_waited_for() -> None:
    counts = {"r": shard(agent_0__1=False, agent_0__2=True, agent_1__1=True)}
    assert still_here(counts) == set()


def test_a_living_sender_is_waited_for() -> None:
    assert still_here({"r": shard(agent_0__1=True, agent_1__5=False)}) == {"agent-1/5"}


def test_a_sender_that_went_to_another_shard_says_goodbye_only_there() -> None:
    counts = {"a": shard(agent_0__1=False), "b": shard(agent_0__1=True)}
    assert still_here(counts) == set()


def test_over_when_all_senders_said_goodbye_and_leave() -> None:
    ending = Shutdown(0.0, timeout_seconds=5.0, shards=1)
    counts = {"r": shard(agent_0__1=True)}
    assert not ending.over(1.0, counts, {"agent-1/1"}.__contains__)
    assert not ending.over(1.0, counts, never)
    assert ending.over(1.0, counts, {"agent-0/1"}.__contains__)


def test_every_shard_must_be_draining() -> None:
    ending = Shutdown(0.0, timeout_seconds=5.0, shards=2)
    assert not ending.over(1.0, {"a": shard()}, never)
    assert not ending.over(1.0, {"a": shard(), "b": shard(draining=False)}, never)
    assert ending.over(1.0, {"a": shard(), "b": shard()}, never)


def test_the_deadline_ends_it_in_any_case() -> None:
    ending = Shutdown(0.0, timeout_seconds=5.0, shards=1)
    counts = {"r": shard(agent_0__1=False)}
    assert not ending.over(4.9, counts, never)
    assert ending.over(5.0, counts, never)


STOPPED = {"status": "stopped", "goal_met": True, "reason": "solved"}


@pytest.mark.parametrize(
    ("at_end", "part", "result", "ended"),
    [
        ("idle", 1, STOPPED, True),
        ("idle", 1, {"status": "failed", "reason": "NaN"}, True),
        ("exit", 1, STOPPED, False),  # its launcher has said that it goes on
        ("idle", 2, STOPPED, False),  # that was the part before
        ("idle", 1, {"status": "interrupted"}, False),
        ("idle", 1, {"status": "running"}, False),
        ("idle", 1, None, False),
    ],
)
def test_a_learner_that_is_started_again_knows_if_the_run_is_over(
    at_end: str, part: int, result: dict[str, Any] | None, ended: bool
) -> None:
    config = Config({"session_config": {"at_end": at_end}, "run": {"part": part}})
    verdict = end_before(config, result, 1)
    assert (verdict is not None) is ended
    if verdict is not None and result is not None:
        assert (verdict.status, verdict.reason) == (result["status"], result["reason"])
