"""A replay that is slow on purpose; apart from other parts, as replay starts without torch."""

from __future__ import annotations

import time
from typing import Any

from surreal_like.replay.kinds import UniformReplay


class SlowReplay(UniformReplay):
    """Takes 200 ms for an answer."""

    def sample_columns(self, batch_size: int) -> dict[str, Any]:
        time.sleep(0.2)
        return super().sample_columns(batch_size)
