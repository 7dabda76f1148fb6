"""Tokens: one word that is whole or refused, used once, and never stored in the clear."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from session.errors import UsageError
from session.wire.security import write_keys
from surreal_like.join.tokens import JoinedMachine, Token, TokenFolder, make_token


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
    assert tokens.machine(one) is None


def give(keys: Path, token: Path, key: str, known: tuple[str, ...], agents: int) -> JoinedMachine:
    tokens = TokenFolder(keys)
    machine = tokens.name(JoinedMachine(key, known), agents)
    tokens.mark_used(token, machine)
    return machine


def test_names_are_given_once(keys: Path) -> None:
    one, two = find(keys, make_token(keys)), find(keys, make_token(keys))
    assert give(keys, one, "a", (), 2).names == ("agent-1000", "agent-1001")
    assert give(keys, two, "b", (), 1).names == ("agent-1002",)
    assert TokenFolder(keys).machine(one) == JoinedMachine("a", ("agent-1000", "agent-1001"))
    # More agents than last time: the old names first.
    grown = give(keys, one, "a", ("agent-1000", "agent-1001"), 3)
    assert grown.names == ("agent-1000", "agent-1001", "agent-1003")
    assert give(keys, one, "a", grown.names, 1).names == grown.names


def test_without_keys_there_are_no_tokens(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot make a token in .*: No such file"):
        make_token(tmp_path)
    assert TokenFolder(tmp_path).find(b"x" * 16) is None
