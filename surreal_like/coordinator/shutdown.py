"""Shutdown of a run: determines when all senders have left, so that the result can be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.config import Config
from session.process.context import run_part
from surreal_like.coordinator.stop_rule import Verdict


def ended_before(
    config: Config, result: Mapping[str, Any] | None, written_in_part: int
) -> Verdict | None:
    """Returns the verdict if this part of the run ended before this start of the learner, else
    None.

    If components idle at the end, the result is not read before the learner is restarted; agents
    that still act must get the end announced again. A run that was only interrupted continues.

    Args:
        config: of the run.
        result: the content of ``result.json``.
        written_in_part: part of the run in which the learner's statistics were written.
    """
    status = (result or {}).get("status")
    if config.session_config.at_end != "idle" or written_in_part != run_part(config):
        return None
    if result is None or status not in ("stopped", "failed"):
        return None
    return Verdict(status, result.get("goal_met"), str(result.get("reason", "")))


def still_here(counts: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Returns senders, as ``name/incarnation``, whose goodbye a shard still waits for.

    A sender replaced by a later incarnation can send no goodbye any more; one that changed its
    shard sends it only to the last shard.

    Args:
        counts: shard -> its newest counts.
    """
    newest: dict[str, int] = {}
    waiting: dict[str, int] = {}
    gone = set()
    for shard in counts.values():
        for key, sender in shard["senders"].items():
            name, _, number = key.rpartition("/")
            incarnation = int(number)
            newest[name] = max(newest.get(name, 0), incarnation)
            if sender["goodbye"]:
                gone.add(key)
            else:
                waiting[key] = incarnation
    return {
        key
        for key, number in waiting.items()
        if key not in gone and number == newest[key.rpartition("/")[0]]
    }


class Shutdown:
    """The end of a run as a state machine: drain, wait for goodbyes, or for the deadline.

    Args:
        now: start of the shutdown [s].
        timeout_seconds: limit of its duration.
        shards: number of replay shards.
    """

    def __init__(self, now: float, *, timeout_seconds: float, shards: int) -> None:
        self._deadline = now + timeout_seconds
        self._shards = shards

    def over(
        self,
        now: float,
        counts: Mapping[str, Mapping[str, Any]],
        senders_final: Mapping[str, bool],
    ) -> bool:
        """Returns True once no sender has to be waited for, or at the deadline.

        Args:
            now: seconds.
            counts: shard -> newest counts.
            senders_final: sender -> True once its leave message has arrived.
        """
        if now >= self._deadline:
            return True
        draining = [shard for shard in counts.values() if shard["draining"]]
        if len(draining) < self._shards or still_here(counts):
            return False
        goodbyes = {
            key
            for shard in counts.values()
            for key, sender in shard["senders"].items()
            if sender["goodbye"]
        }
        return all(senders_final.get(key, False) for key in goodbyes)
