"""Names of games, and the extra that has their emulator."""

from __future__ import annotations

import pytest

from surreal_like.env.kinds import extra_of, list_environments


def test_games_are_listed_with_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ale_py")
    assert "atari:Pong" in list_environments()
    assert extra_of("atari:Pong") == ""
    monkeypatch.setattr("surreal_like.addons.atari.kind.is_installed", lambda package: False)
    assert extra_of("atari:Pong") == "atari"
