"""Tokens: one word that is whole or refused, used once, and never stored in the clear."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest

from session.errors import UsageError
from session.wire.security import write_keys
from surreal_like.addons.join.tokens import (
    Admissions,
    JoinedMachine,
    NotAdmittedError,
    Token,
    TokenFolder,
    make_token,
)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    write_keys(tmp_path / "keys")
    return tmp_path / "keys"


def find(keys: Path, word: str) -> Path:
    found = TokenFolder(keys).find(Token.decode(word).secret)
    assert found is not None
    return found


def test_a_token_is_one_word_that_a_shell_leaves_alone(keys: Path) -> None:
    word = make_token(keys)
    assert word.startswith("sl1-")
    assert word.replace("-", "").replace("_", "").isalnum()
    token = Token.decode(word)
    assert token.server_public == (keys / "server.pub").read_bytes().strip()
    assert token.encode() == word
    assert word[-20:] not in repr(token)


@pytest.mark.parametrize("wrong", ["", "sl1-", "sl1-x", "nonsense", "sl1-ä", "sl1-" + "A" * 68])
def test_what_is_no_token_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="is no token: copy the whole line"):
        Token.decode(wrong)


def test_a_part_of_a_token_is_refused(keys: Path) -> None:
    word = make_token(keys)
    for length in range(len(word)):
        with pytest.raises(UsageError, match="is no token"):
            Token.decode(word[:length])
    swapped = word[:10] + ("A" if word[10] != "A" else "B") + word[11:]
    with pytest.raises(UsageError, match="is no token"):
        Token.decode(swapped)


def test_only_a_hash_of_the_secret_is_kept(keys: Path) -> None:
    token = Token.decode(make_token(keys))
    (file,) = (keys / "tokens").iterdir()
    kept = file.name.encode() + file.read_bytes()
    assert token.secret not in kept
    assert token.secret.hex().encode() not in kept
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_token_is_found_by_its_secret_only(keys: Path) -> None:
    tokens = TokenFolder(keys)
    assert tokens.find(b"x" * 16) is None
    one, two = find(keys, make_token(keys)), find(keys, make_token(keys))
    assert one != two
    assert tokens.find(b"x" * 16) is None
    assert Admissions.load(one) == Admissions(1)


def give(keys: Path, token: Path, key: str, agents: int) -> JoinedMachine:
    tokens, places = TokenFolder(keys), Admissions.load(token)
    machine = tokens.name(places.machine(key) or JoinedMachine(key, ()), agents)
    tokens.write(token, places.with_machine(machine))
    return machine


def test_names_are_given_once(keys: Path) -> None:
    one, two = find(keys, make_token(keys)), find(keys, make_token(keys))
    assert give(keys, one, "a", 2).names == ("agent-1000", "agent-1001")
    assert give(keys, two, "b", 1).names == ("agent-1002",)
    assert Admissions.load(one).machine("a") == JoinedMachine("a", ("agent-1000", "agent-1001"))
    assert Admissions.load(one).machine("b") is None
    # More agents than last time: the old names first.
    grown = give(keys, one, "a", 3)
    assert grown.names == ("agent-1000", "agent-1001", "agent-1003")
    assert give(keys, one, "a", 1).names == grown.names
    assert Admissions.load(one).machines == (grown,)


def room(
    token: Path, now: float = 0.0, silent: str = "", *, named: bool = True, key: str = "new"
) -> JoinedMachine | None:
    places = Admissions.load(token)
    machine = places.machine(key) or JoinedMachine(key)
    return places.make_room(machine, now, lambda other: other == silent, named=named)


def test_a_token_has_as_many_places_as_it_says(keys: Path) -> None:
    token = find(keys, make_token(keys, uses=3))
    for number in range(3):
        assert room(token) is None
        give(keys, token, f"machine {number}", 2)
    with pytest.raises(NotAdmittedError, match=r"is used up: 3 machines have joined .* --print RU"):
        room(token)
    # One that has a place may have more, and the place of a silent one goes to the next.
    assert room(token, key="machine 1") is None
    gone = room(token, silent="machine 1")
    assert gone is not None
    assert gone.names == ("agent-1002", "agent-1003")
    # One that only watches takes the place of no agent, and there is a limit to such, too.
    for number in range(3):
        assert room(token, named=False) is None
        give(keys, token, f"watch {number}", 0)
    with pytest.raises(NotAdmittedError, match="is used up"):
        room(token, named=False)
    # It has no place for agents, and gives none to them.
    with pytest.raises(NotAdmittedError, match="is used up"):
        room(token, key="watch 1", silent="watch 2")
    assert room(token, silent="watch 2", named=False) == JoinedMachine("watch 2")


def test_a_token_admits_until_its_time_is_over(keys: Path) -> None:
    token, now = find(keys, make_token(keys, uses=2, valid_seconds=3600.0)), time.time()
    until = Admissions.load(token).until
    assert until is not None
    assert now - 60.0 < until - 3600.0 < now + 1.0
    assert room(token, until - 1.0) is None
    give(keys, token, "machine", 1)
    give(keys, token, "watch", 0)
    for key, silent, named in (
        ("new", "", True),
        ("new", "", False),
        ("new", "machine", True),
        ("machine", "", True),
        ("watch", "", True),
    ):
        with pytest.raises(NotAdmittedError, match="this token has expired 1:40:00 ago") as caught:
            room(token, until + 6000.5, silent, named=named, key=key)
        assert not caught.value.for_now


def test_a_token_for_one_machine_gives_its_place_to_no_other(keys: Path) -> None:
    token = find(keys, make_token(keys))
    give(keys, token, "machine", 1)
    give(keys, token, "watch", 0)
    with pytest.raises(NotAdmittedError, match="used by another machine"):
        room(token, silent="machine")
    with pytest.raises(NotAdmittedError, match="used by another machine"):
        room(token, named=False)
    assert room(token, silent="watch", named=False) is not None


def test_a_token_that_was_used_is_private_as_before(keys: Path) -> None:
    token = find(keys, make_token(keys))
    give(keys, token, "machine", 1)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


@pytest.mark.parametrize("uses", [0, -1, 10_001])
def test_a_wrong_number_of_uses_is_refused(keys: Path, uses: int) -> None:
    with pytest.raises(UsageError, match=rf"--uses is {uses}, expected 1 to 10000"):
        make_token(keys, uses)
    assert not (keys / "tokens").exists()


def test_without_keys_there_are_no_tokens(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot make a token in .*: No such file"):
        make_token(tmp_path)
    assert TokenFolder(tmp_path).find(b"x" * 16) is None
