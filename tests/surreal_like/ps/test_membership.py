"""Every rule of the hello, without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from surreal_like.ps.parameter_server import Membership, Refused

OURS = {"protocol": 1, "fingerprint": "f" * 64, "spec_hash": "abc"}


def membership() -> Membership:
    return Membership(protocol=1, fingerprint="f" * 64, spec_hash="abc")


def say(
    to: Membership,
    incarnation: int,
    *,
    fresh: bool = True,
    name: str = "agent-0",
    **changes: Any,
) -> tuple[int, int] | Refused:
    """Returns the number of starts and the incarnation, or the refusal."""
    fields = {**OURS, "name": name, "incarnation": incarnation, "fresh": fresh, **changes}
    answer = to.hello(fields)
    return answer if isinstance(answer, Refused) else (answer.starts, answer.incarnation)


def test_a_first_hello_is_the_first_start() -> None:
    assert say(membership(), 100) == (1, 100)


def test_each_fresh_process_of_a_name_is_another_start() -> None:
    members = membership()
    say(members, 100)
    assert say(members, 200) == (2, 200)
    assert say(members, 50, name="agent-1") == (1, 50)
    assert len(members) == 2


@pytest.mark.parametrize("slow", [99, 1])
def test_a_fresh_process_with_a_slow_clock_gets_a_newer_incarnation(slow: int) -> None:
    members = membership()
    say(members, 100)
    assert say(members, slow) == (2, 101)
    assert say(members, 101, fresh=False) == (2, 101)


def test_a_repeated_hello_of_one_process_is_one_start() -> None:
    members = membership()
    say(members, 100)
    assert say(members, 100) == (1, 100)
    slow = say(members, 40)
    assert slow == (2, 101)
    assert say(members, 40) == slow
    assert members.superseded("agent-0", 101) is None


def test_a_hello_that_arrives_late_does_not_replace_its_own_process() -> None:
    members = membership()
    say(members, 100)
    assert say(members, 40) == (2, 101)
    assert say(members, 101, fresh=False, starts=2) == (2, 101)
    assert say(members, 40) == (2, 101)
    assert members.superseded("agent-0", 101) is None


def test_a_reconnected_process_keeps_its_place() -> None:
    members = membership()
    say(members, 100)
    say(members, 200)
    assert say(members, 200, fresh=False) == (2, 200)


def test_a_process_that_has_been_replaced_is_refused_with_both_incarnations() -> None:
    members = membership()
    say(members, 100)
    say(members, 200)
    answer = say(members, 100, fresh=False)
    assert isinstance(answer, Refused)
    assert "100" in answer.reason
    assert "200" in answer.reason
    assert members.superseded("agent-0", 100) == answer.reason


@pytest.mark.parametrize(("name", "incarnation"), [("agent-0", 200), ("agent-0", 201), ("cli", 1)])
def test_the_newest_or_an_unknown_incarnation_may_send(name: str, incarnation: int) -> None:
    members = membership()
    say(members, 200)
    assert members.superseded(name, incarnation) is None


def test_a_new_server_learns_from_processes_that_an_older_one_accepted() -> None:
    members = membership()
    assert say(members, 200, fresh=False) == (1, 200)
    assert say(members, 100, fresh=False) == Refused(
        "'agent-0' of incarnation 100 has been replaced by incarnation 200: this process must end"
    )
    assert say(members, 300) == (2, 300)


def test_a_returning_process_that_is_newer_than_the_known_one_takes_its_place() -> None:
    members = membership()
    say(members, 100, fresh=False)
    assert say(members, 200, fresh=False) == (1, 200)
    assert members.superseded("agent-0", 100) is not None


def test_starts_that_a_process_knows_of_are_not_forgotten() -> None:
    members = membership()
    assert say(members, 100, fresh=False, starts=3) == (3, 100)
    assert say(members, 200) == (4, 200)


@pytest.mark.parametrize(
    ("what", "theirs", "shown"),
    [
        ("protocol", 2, ("2", "1")),
        ("fingerprint", "e" * 64, ("e" * 16, "f" * 16)),
        ("fingerprint", "f" * 63 + "e", ("f" * 63 + "e", "f" * 64)),
        ("spec_hash", "xyz", ("xyz", "abc")),
    ],
)
def test_another_run_is_refused_with_both_values(
    what: str, theirs: object, shown: tuple[str, str]
) -> None:
    members = membership()
    changes: dict[str, Any] = {what: theirs}
    answer = say(members, 100, **changes)
    assert isinstance(answer, Refused)
    assert f"{what} {shown[0]}, this run has {shown[1]}:" in answer.reason
    assert "'agent-0'" in answer.reason
    assert len(members) == 0


@pytest.mark.parametrize("missing", ["protocol", "name", "incarnation", "fresh"])
def test_a_hello_without_a_field_is_an_error(missing: str) -> None:
    fields = {**OURS, "name": "agent-0", "incarnation": 1, "fresh": True}
    del fields[missing]
    with pytest.raises(KeyError):
        membership().hello(fields)
