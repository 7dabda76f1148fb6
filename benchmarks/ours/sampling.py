"""A learner's side: batches out of replay, priorities back. Rounds of :mod:`worker`.

python sampling.py RUN_FOLDER
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "peers")]

import numpy as np  # noqa: E402
from rows import make_chunks  # noqa: E402
from services import play  # noqa: E402
from steps import check_order  # noqa: E402
from worker import Answer, serve  # noqa: E402

from session.process.context import Context  # noqa: E402
from session.wire.socket_state import poll  # noqa: E402
from surreal_like.data.batch import Sampled  # noqa: E402
from surreal_like.replay.batch_requests import ReplayClient  # noqa: E402
from surreal_like.replay.replay import load_replay_class  # noqa: E402

_POLL_SECONDS = 0.01
_QUIET_SECONDS = 0.05


class Sampling:
    """Batches for a learner's process.

    Args:
        context: the learner's.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._batch_size = context.config.learner_config.replay.batch_size
        self._clients: dict[int, ReplayClient] = {}
        self._used = 0  # batches per request of the client that was used last
        self._generator = np.random.default_rng(0)

    def handlers(self) -> dict[str, Callable[..., Answer]]:
        """Returns the operations by name."""
        return {
            "batches": self.batches,
            "unrolls": self.unrolls,
            "priorities": self.priorities,
        }

    def _client(self, batches_per_request: int) -> ReplayClient:
        if self._used not in (0, batches_per_request):
            _drain(self._clients[self._used])
        self._used = batches_per_request
        if batches_per_request not in self._clients:
            config, context = self._context.config, self._context
            learner = config.session_config.learner
            under_way = learner.prefetch_requests * learner.batches_per_request
            self._clients[batches_per_request] = ReplayClient(
                context.wire,
                context.clock,
                shards=["replay-0"],
                batch_size=self._batch_size,
                batches_per_request=batches_per_request,
                requests_in_flight=under_way // batches_per_request,
                collate=load_replay_class(config.learner_config).collate(config.learner_config),
            )
        return self._clients[batches_per_request]

    def batches(self, *, per_request: int, seconds: float, least: int = 0) -> Answer:
        """Takes batches one after the other for a while, and at least so many."""
        client = self._client(per_request)
        taken = size = 0
        begin = time.perf_counter()
        while taken < least or time.perf_counter() < begin + seconds:
            sampled = _next(client)
            taken += 1
            size = size or sum(column.nbytes for column in sampled.columns.values())
        passed = time.perf_counter() - begin
        return {
            "rows": taken * self._batch_size,
            "seconds": passed,
            "row_bytes": size / self._batch_size,
        }

    def unrolls(self, *, batches: int) -> Answer:
        """Takes batches of unrolls, and checks their order afterwards."""
        config = self._context.config
        steps, streams = config.session_config.sender.flush_iteration, config.env_config.num_envs
        client, marks = self._client(1), []
        begin = time.perf_counter()
        for _ in range(batches):
            marks.append(_next(client).columns["obs"][0, ::streams, 0].copy())
        passed = time.perf_counter() - begin
        check_order(marks, make_chunks("small", steps + 1, streams))
        return {"seconds": passed}

    def priorities(self, *, per_request: int, seconds: float) -> Answer:
        """Takes batches and sends new priorities; a batch whose priorities did not leave counts
        for nothing, for a learner does not wait until they can.
        """
        client, sent = self._client(per_request), self._sent()
        fresh = self._generator.random((64, self._batch_size), np.float32)
        taken = 0
        begin = time.perf_counter()
        while time.perf_counter() < begin + seconds:
            sampled = _next(client)
            client.update_priorities(sampled, fresh[taken % len(fresh)])
            taken += 1
        passed = time.perf_counter() - begin
        return {"rows": (self._sent() - sent) * self._batch_size, "seconds": passed}

    def _sent(self) -> int:
        """Messages with priorities that have left."""
        counters = self._context.wire.counters()
        return sum(each.sent for name, each in counters.items() if name.endswith(".priorities"))


def _drain(client: ReplayClient) -> None:
    """Takes all batches that are under way: clients share one connection, and their replies."""
    poll(client.sockets(), _QUIET_SECONDS)
    while client.tick(ask=False):
        poll(client.sockets(), _QUIET_SECONDS)
    while client.next() is not None:
        pass


def _next(client: ReplayClient) -> Sampled:
    """The next batch, waited for."""
    while True:
        client.tick()
        sampled = client.next()
        if sampled is not None:
            return sampled
        poll(client.sockets(), _POLL_SECONDS)


if __name__ == "__main__":
    with play(sys.argv[1], "learner") as contexts:
        serve(Sampling(contexts[0]).handlers())
