"""Every rule of the hello, without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from surreal_like.ps.membership import Accepted, Membership, Refused

OURS = {"protocol": 1, "fingerprint": "f" * 64, "spec_hash": "abc"}


def roll() -> Membership:
    return Membership(protocol=1, fingerprint="f" * 64, spec_hash="abc")


def say(
    to: Membership,
    incarnation: int,
    *,
    fresh: bool = True,
    peer: bytes = b"",
    name: str = "agent-0",
    **changes: Any,
) -> Accepted | Refused:
    fields = {**OURS, "name": name, "incarnation": incarnation, "fresh": fresh, **changes}
    return to.hello(peer or f"{name}{incarnation}".encode(), fields)


def test_a_first_hello_is_the_first_start() -> None:
    assert say(roll(), 100) == Accepted(starts=1, incarnation=100)


def test_each_fresh_process_of_a_name_is_another_start() -> None:
    book = roll()
    say(book, 100)
    assert say(book, 200) == Accepted(starts=2, incarnation=200)
    assert say(book, 50, name="agent-1") == Accepted(starts=1, incarnation=50)
    assert len(book) == 2


@pytest.mark.parametrize("slow", [100, 99, 1])
def test_a_fresh_process_with_a_slow_clock_gets_a_newer_incarnation(slow: int) -> None:
    book = roll()
    say(book, 100)
    assert say(book, slow, peer=b"new") == Accepted(starts=2, incarnation=101)
    assert say(book, 101, fresh=False) == Accepted(starts=2, incarnation=101)


def test_a_repeated_hello_of_one_process_is_one_start() -> None:
    book = roll()
    say(book, 100)
    slow = say(book, 40, peer=b"slow")
    assert slow == Accepted(starts=2, incarnation=101)
    assert say(book, 40, peer=b"slow") == slow


def test_a_reconnected_process_keeps_its_place() -> None:
    book = roll()
    say(book, 100)
    say(book, 200)
    assert say(book, 200, fresh=False, peer=b"again") == Accepted(starts=2, incarnation=200)


def test_a_process_that_has_been_replaced_is_refused_with_both_incarnations() -> None:
    book = roll()
    say(book, 100)
    say(book, 200)
    answer = say(book, 100, fresh=False)
    assert isinstance(answer, Refused)
    assert "100" in answer.reason
    assert "200" in answer.reason
    assert book.superseded("agent-0", 100) == answer.reason


@pytest.mark.parametrize(("name", "incarnation"), [("agent-0", 200), ("agent-0", 201), ("cli", 1)])
def test_the_newest_or_an_unknown_incarnation_may_send(name: str, incarnation: int) -> None:
    book = roll()
    say(book, 200)
    assert book.superseded(name, incarnation) is None


def test_a_new_roll_learns_from_processes_that_an_older_one_accepted() -> None:
    book = roll()
    assert say(book, 200, fresh=False) == Accepted(starts=1, incarnation=200)
    assert say(book, 100, fresh=False, peer=b"old") == Refused(
        "'agent-0' of incarnation 100 has been replaced by incarnation 200: this process must end"
    )
    assert say(book, 300) == Accepted(starts=2, incarnation=300)


def test_a_returning_process_that_is_newer_than_the_known_one_takes_its_place() -> None:
    book = roll()
    say(book, 100, fresh=False)
    assert say(book, 200, fresh=False) == Accepted(starts=1, incarnation=200)
    assert book.superseded("agent-0", 100) is not None


def test_starts_that_a_process_knows_of_are_not_forgotten() -> None:
    book = roll()
    assert say(book, 100, fresh=False, starts=3) == Accepted(starts=3, incarnation=100)
    assert say(book, 200) == Accepted(starts=4, incarnation=200)


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
    book = roll()
    changes: dict[str, Any] = {what: theirs}
    answer = say(book, 100, **changes)
    assert isinstance(answer, Refused)
    assert f"{what} {shown[0]}, this run has {shown[1]}:" in answer.reason
    assert "'agent-0'" in answer.reason
    assert len(book) == 0


@pytest.mark.parametrize("missing", ["protocol", "name", "incarnation", "fresh"])
def test_a_hello_without_a_field_is_an_error(missing: str) -> None:
    fields = {**OURS, "name": "agent-0", "incarnation": 1, "fresh": True}
    del fields[missing]
    with pytest.raises(KeyError):
        roll().hello(b"", fields)
