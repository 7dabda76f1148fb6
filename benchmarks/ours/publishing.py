"""A learner's side of the parameters: publishes a network. Rounds of :mod:`worker`.

python publishing.py RUN_FOLDER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "peers")]

import torch  # noqa: E402
from networks import make_network  # noqa: E402
from services import play  # noqa: E402
from worker import Answer, serve  # noqa: E402

from session.process.context import Context  # noqa: E402
from surreal_like.learner.publisher import Publisher  # noqa: E402
from surreal_like.network.flat import manifest_of, named_tensors, read_flat  # noqa: E402


class Publishing:
    """Publications of a learner's process.

    Args:
        context: the learner's.
    """

    def __init__(self, context: Context) -> None:
        socket = context.wire.publisher("learner.parameters")
        self._publisher = Publisher(
            socket, context.clock, incarnation=context.incarnation, version=0
        )
        self._network = make_network()
        self._manifest = manifest_of(named_tensors(self._network))

    def publish(self) -> Answer:
        """One publication; when it began, on the clock that all processes here share."""
        began = time.monotonic()
        flat = read_flat(self._network)
        self._publisher.publish(flat, self._manifest, iteration=1, env_steps=1)
        return {
            "version": self._publisher.version,
            "began": began,
            "seconds": time.monotonic() - began,
            "size_bytes": flat.nbytes,
        }

    def repeat(self) -> Answer:
        """Sends the newest again to new subscribers."""
        self._publisher.tick()
        return {}


if __name__ == "__main__":
    torch.set_num_threads(1)
    with play(sys.argv[1], "learner") as contexts:
        publishing = Publishing(contexts[0])
        serve({"publish": publishing.publish, "repeat": publishing.repeat})
