"""Tokens: one word that is whole or refused, used once, and never stored in the clear."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest

from session.errors import UsageError
from session.wire.security import write_keys
from surreal_like.join.tokens import (
    JoinedMachine,
    NotAdmittedError,
    Places,
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
    assert Places.load(one) == Places(1)


def give(keys: Path, token: Path, key: str, agents: int) -> JoinedMachine:
    tokens, places = TokenFolder(keys), Places.load(token)
    machine = tokens.name(places.machine(key) or JoinedMachine(key, ()), agents)
    tokens.write(token, places.with_machine(machine))
    return machine


def test_names_are_given_once(keys: Path) -> None:
    one, two = find(keys, make_token(keys)), find(keys, make_token(keys))
    assert give(keys, one, "a", 2).names == ("agent-1000", "agent-1001")
    assert give(keys, two, "b", 1).names == ("agent-1002",)
    assert Places.load(one).machine("a") == JoinedMachine("a", ("agent-1000", "agent-1001"))
    assert Places.load(one).machine("b") is None
    # More agents than last time: the old names first.
    grown = give(keys, one, "a", 3)
    assert grown.names == ("agent-1000", "agent-1001", "agent-1003")
    assert give(keys, one, "a", 1).names == grown.names
    assert Places.load(one).machines == (grown,)


def test_a_token_has_as_many_places_as_it_says(keys: Path) -> None:
    token = find(keys, make_token(keys, uses=3))
    for number in range(3):
        Places.load(token).check_room(0.0, named=True)
        give(keys, token, f"machine {number}", 2)
    with pytest.raises(NotAdmittedError, match=r"is used up: 3 machines have joined .* --print RU"):
        Places.load(token).check_room(0.0, named=True)
    # One that only watches takes the place of no agent, and there is a limit to such, too.
    for number in range(3):
        Places.load(token).check_room(0.0, named=False)
        give(keys, token, f"watch {number}", 0)
    with pytest.raises(NotAdmittedError, match="is used up"):
        Places.load(token).check_room(0.0, named=False)


def test_a_token_admits_until_its_time_is_over(keys: Path) -> None:
    places = Places.load(find(keys, make_token(keys, valid_seconds=3600.0)))
    now = time.time()
    places.check_room(now + 3500.0, named=True)
    with pytest.raises(
        NotAdmittedError, match=r"this token has expired 1:40:0\d ago; get"
    ) as caught:
        places.check_room(now + 9600.0, named=True)
    assert not caught.value.for_now


@pytest.mark.parametrize("uses", [0, -1, 10_001])
def test_a_wrong_number_of_uses_is_refused(keys: Path, uses: int) -> None:
    with pytest.raises(UsageError, match=rf"--uses is {uses}, expected 1 to 10000"):
        make_token(keys, uses)
    assert not (keys / "tokens").exists()


def test_without_keys_there_are_no_tokens(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot make a token in .*: No such file"):
        make_token(tmp_path)
    assert TokenFolder(tmp_path).find(b"x" * 16) is None
