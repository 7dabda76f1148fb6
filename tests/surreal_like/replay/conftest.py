"""Shared by tests of replay shards."""

from __future__ import annotations

import pytest

from session.process.context import Context


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every event, as a line."""
    lines: list[str] = []

    def note(self: Context, kind: str, detail: str = "", **_: object) -> None:
        lines.append(f"{kind} {detail}")

    monkeypatch.setattr(Context, "event", note)
    return lines
