"""Scripts of the trained policies: their pictures, what is chosen, and what is compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session.errors import MissingExtra, UsageError

pytestmark = pytest.mark.usefixtures("quick")


def test_only_what_cannot_be_drawn_has_no_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("PIL", reason="the extra video is not installed")
    from docs.images import zoo

    def refuse(error: UsageError) -> None:
        def play(*args: Any, **options: Any) -> None:
            raise error

        monkeypatch.setattr(zoo, "play", play)

    refuse(UsageError("it has no pictures to show"))
    assert zoo.film("bitflip_dqn", tmp_path) is None
    refuse(MissingExtra.named("a video", "video"))
    with pytest.raises(MissingExtra):
        zoo.film("cartpole_pqn", tmp_path)
