"""Updates of the learners of a checkout, which may be another one. Rounds of :mod:`worker`.

python learning.py CHECKOUT
"""

from __future__ import annotations

import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

CHECKOUT = Path(sys.argv[1]).resolve()
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks" / "ours")]
sys.path.append(str(Path(__file__).resolve().parent.parent))
# Of the process that resolves an experiment.
os.environ["PYTHONPATH"] = str(CHECKOUT)

import torch  # noqa: E402
from prepared import make_batch, make_learner, resolved  # noqa: E402
from worker import Answer, serve  # noqa: E402


@cache
def made(name: str) -> tuple[Any, Any]:
    """Returns the learner of a shipped config, and a batch."""
    config = resolved(name)
    return make_learner(config), make_batch(config)


def learn(*, name: str, seconds: float) -> Answer:
    """Learns from one batch again and again for some processor time."""
    learner, batch = made(name)
    count, begin = 0, time.process_time()
    while time.process_time() < begin + seconds or not count:
        # Operators of a plan add columns to a batch.
        learner.learn(type(batch)(batch))
        count += 1
    return {"rows": count, "seconds": time.process_time() - begin}


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({"learn": learn})
