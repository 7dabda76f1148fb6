"""Who must be waited for at the end of a run."""

from typing import Any

from surreal_like.learner.ending import Ending, still_here


def shard(draining: bool = True, **goodbyes: bool) -> dict[str, Any]:
    senders = {
        key.replace("_", "-").replace("--", "/"): {"goodbye": g} for key, g in goodbyes.items()
    }
    return {"draining": draining, "senders": senders}


def test_a_replaced_incarnation_is_not_waited_for() -> None:
    counts = {"r": shard(agent_0__1=False, agent_0__2=True, agent_1__1=True)}
    assert still_here(counts) == set()


def test_a_living_sender_is_waited_for() -> None:
    assert still_here({"r": shard(agent_0__1=True, agent_1__5=False)}) == {"agent-1/5"}


def test_over_when_everybody_said_goodbye_and_farewell() -> None:
    ending = Ending(0.0, timeout_seconds=5.0, shards=1)
    counts = {"r": shard(agent_0__1=True)}
    assert not ending.over(1.0, counts, {"agent-0/1": False})
    assert not ending.over(1.0, counts, {})
    assert ending.over(1.0, counts, {"agent-0/1": True})


def test_every_shard_must_be_draining() -> None:
    ending = Ending(0.0, timeout_seconds=5.0, shards=2)
    assert not ending.over(1.0, {"a": shard()}, {})
    assert not ending.over(1.0, {"a": shard(), "b": shard(draining=False)}, {})
    assert ending.over(1.0, {"a": shard(), "b": shard()}, {})


def test_the_deadline_ends_it_in_any_case() -> None:
    ending = Ending(0.0, timeout_seconds=5.0, shards=1)
    counts = {"r": shard(agent_0__1=False)}
    assert not ending.over(4.9, counts, {})
    assert ending.over(5.0, counts, {})
