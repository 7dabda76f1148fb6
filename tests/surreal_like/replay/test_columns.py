"""The columns of rows are those of the launcher's own agents, whatever comes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from surreal_like.data.columns import manifest_of, parse_columns, plain_columns
from surreal_like.errors import DataError
from surreal_like.experience.chunk import GRADIENT, Chunk
from surreal_like.replay.chunk_validator import ChunkValidator
from surreal_like.replay.kinds import FIFOReplay, PrioritizedReplay, UniformReplay
from surreal_like.replay.replay import Replay
from surreal_like.replay.tuple_replay import TupleReplay
from tests.add_ons import load_replays
from tests.surreal_like.replay.configs import configs

GUEST, OWN = "agent-1000", "agent-0"
STEPS = 4


class Tuples(TupleReplay):
    def insert(self, experience: Any) -> None:
        pass


def columns(kind: type[Replay]) -> dict[str, Any]:
    if kind.gives() == "gradients":
        return {**_rows((1, 1)), GRADIENT: np.ones((1, 1, 5), np.float32)}
    seen = {"obs": (3,), "action": (), "extras/logits": (2,)}
    shape = (STEPS + kind.overlap, 2)
    return _rows(shape) | {name: np.zeros((*shape, *dim), np.float32) for name, dim in seen.items()}


def _rows(shape: tuple[int, int]) -> dict[str, Any]:
    return {
        "step_type": np.ones(shape, np.uint8),
        "reward": np.zeros(shape, np.float32),
        "discount": np.ones(shape, np.float32),
        "version": np.zeros(shape, np.int64),
    }


def make(kind: type[Replay], *, recorded: bool, host: str = "") -> Replay:
    session = {"sender": {"flush_iteration": STEPS}, "launcher": {"host": host}}
    replay: dict[str, Any] = {"capacity": 100, "batch_size": 2, "min_size": 1}
    replay["sequence"] = {"length": 2, "burn_in": 0, "period": 1}
    given = configs(session=session, **replay)
    known = plain_columns(manifest_of(columns(kind), axes=2)) if recorded else {}
    place = given["learner_config"]
    if kind.gives() == "gradients":
        place.gradient_columns = known
    else:
        place.replay.columns = known
    return kind(**given)


def chunk(kind: type[Replay], sender: str, change: Callable[[Any], Any] = lambda each: None) -> Any:
    given = columns(kind)
    change(given)
    streams = list(range(given["step_type"].shape[1]))
    overlap = kind.overlap if kind.gives() != "gradients" else 0
    made = Chunk(given, 1, streams, sender=sender, incarnation=1, overlap=overlap)
    made.rows = made.size
    return made


def last(given: dict[str, Any]) -> str:
    return list(given)[-1]


CHANGES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda c: c.update({"extras/x": c["reward"]}), "'extras/x' is unknown"),
    (lambda c: c.pop(last(c)), "is missing"),
    (lambda c: c.update({last(c): c[last(c)].astype(np.float64)}), "is float64"),
    (lambda c: c.update({last(c): c[last(c)][..., :1]}), "is float32"),
]
KINDS = [
    UniformReplay,
    PrioritizedReplay,
    FIFOReplay,
    Tuples,
    *load_replays(),
]


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_guest_that_is_first_does_not_decide_them(
    kind: type[Replay], change: Callable[[Any], Any], said: str, recorded: bool
) -> None:
    replay = make(kind, recorded=recorded)
    with pytest.raises(DataError, match=GUEST) as error:
        replay.insert_chunk(chunk(kind, GUEST, change))
    assert (said if recorded else "not known yet") in str(
        error.value
    ) or kind.gives() == "gradients"
    for sender in ("agent-1", OWN):
        replay.insert_chunk(chunk(kind, sender))
    # From now on rows that are alike are taken from it, and others are not.
    replay.insert_chunk(chunk(kind, GUEST))
    with pytest.raises(DataError, match=GUEST):
        replay.insert_chunk(chunk(kind, GUEST, change))


def test_where_all_agents_are_guests_their_columns_are_known() -> None:
    replay = make(UniformReplay, recorded=True, host="10.0.0.1")
    replay.insert_chunk(chunk(UniformReplay, GUEST))
    assert replay.statistics()["size"] == 8


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_replay_of_ones_own_gets_no_other_columns_from_a_guest(
    change: Callable[[Any], Any], said: str
) -> None:
    specs = {"obs_spec": {"type": "float32", "dim": [3]}, "action_spec": {}, "frame_stack": 0}
    known = plain_columns(manifest_of(columns(UniformReplay), axes=2))
    validator = ChunkValidator(specs, parse_columns(known))
    validator.distrust(GUEST)
    assert validator.refusal(chunk(UniformReplay, GUEST)) is None
    refused = validator.refusal(chunk(UniformReplay, GUEST, change))
    assert refused is not None
    assert said.replace("is float", "of float").split("' ")[-1] in refused[1]
