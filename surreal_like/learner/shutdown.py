"""How a run ends: who must have said goodbye before the result is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.config import Config
from session.context import run_part
from surreal_like.learner.stop_rule import Verdict


def ended_before(
    config: Config, result: Mapping[str, Any] | None, written_in_part: int
) -> Verdict | None:
    """How this part of the run has ended before this start of the learner, None if it goes on.

    Where components idle at the end nobody reads the result before the learner is started again;
    those who still act must hear of it once more. What was only interrupted goes on.

    Args:
        config: of the run.
        result: the content of ``result.json``.
        written_in_part: which part of the run has left the learner's record.
    """
    status = (result or {}).get("status")
    if config.session_config.at_end != "idle" or written_in_part != run_part(config):
        return None
    if result is None or status not in ("stopped", "failed"):
        return None
    return Verdict(status, result.get("goal_met"), str(result.get("reason", "")))


def still_here(counts: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Senders, as ``name/incarnation``, whose goodbye some shard still waits for.

    A sender that a later incarnation has replaced cannot say goodbye any more; one that has changed
    its shard says it only to the last one.

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
        now: when it began, seconds.
        timeout_seconds: how long it may take.
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
        """True once nobody needs to be waited for.

        Args:
            now: seconds.
            counts: shard -> newest counts.
            senders_final: sender -> True once its leave message has been heard.
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
