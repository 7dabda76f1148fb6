"""A stage with a gateway, whose clients come back at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from surreal_like.addons.gateway.clients import surreal_client
from tests.addons.gateway.rig import Stage, make_stage


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(surreal_client, "_FIRST_DELAY", 0.02)
    with make_stage() as made:
        yield made
