"""The queue of gradients: what it takes, the order, the age, what it keeps over a restart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError
from surreal_like.addons.gradients.replay import GradientReplay, GradientView
from surreal_like.errors import DataError
from surreal_like.experience.chunk import GRADIENT, Chunk
from surreal_like.replay.replay import Replay, load_replay_class
from surreal_like.replay.storage import ColumnStorage
from surreal_like.replay.view.n_step import View
from tests.contracts.replay import ReplayContract, ViewContract
from tests.surreal_like.replay.configs import configs
from tests.surreal_like.replay.test_kinds import kept_in

P = 5
FIFO = "FIFOReplay"


def make(columns: dict[str, Any] | None = None, **replay: Any) -> GradientReplay:
    """A queue; ``columns`` are those of ``learner_config.gradient_columns``."""
    session = {"sender": {"flush_iteration": 16}}
    made = configs(session=session, **{"batch_size": 1, **replay})
    made["learner_config"].gradient_columns = columns or {}
    return GradientReplay(**made)


def make_chunk(number: int = 1, *, version: int = 0, **changed: Any) -> Chunk:
    columns: dict[str, Any] = {
        "step_type": np.ones((1, 1), np.uint8),
        "reward": np.zeros((1, 1), np.float32),
        "discount": np.ones((1, 1), np.float32),
        "version": np.full((1, 1), version, np.int64),
        GRADIENT: np.full((1, 1, P), number, np.float32),
        "extras/rows": np.full((1, 1), 100, np.int64),
        "extras/metrics/loss": np.full((1, 1), np.nan, np.float32),
    }
    columns |= {name: column for name, column in changed.items() if column is not None}
    return Chunk(columns, number, [0], sender="agent-0", incarnation=1)


def first_numbers(store: GradientReplay, count: int) -> list[int]:
    """The first element of each gradient of a batch."""
    found: list[int] = store.sample_columns(count)[GRADIENT][:, 0].tolist()
    return found


def test_a_fifo_replay_holds_gradients_where_agents_make_them() -> None:
    config = {"replay": {"type": FIFO}, "gradients_at": "agent"}
    assert load_replay_class(config) is GradientReplay
    assert load_replay_class({**config, "gradients_at": "learner"}).__name__ == "FIFOReplay"
    config["replay"] = {"type": "UniformReplay"}
    with pytest.raises(ConfigError, match=r"agent, but .*type is UniformReplay: .* FIFOReplay"):
        load_replay_class(config)


def test_each_gradient_is_given_once_and_the_oldest_first() -> None:
    store = make(capacity=4, batch_size=2)
    for number in range(1, 5):
        assert store.can_insert()
        store.insert_chunk(make_chunk(number))
    # Capacity and batches count gradients, however many rows they were made from.
    assert not store.can_insert()
    batch = store.sample_columns(2)
    assert batch[GRADIENT].tolist() == [[1.0] * P, [2.0] * P]
    assert (batch["version"].shape, batch["extras/rows"].tolist()) == ((2,), [100, 100])
    assert store.rows_in(2) == 2
    store.undo_sample()
    assert first_numbers(store, 3) == [1, 2, 3]
    assert not store.can_sample(2)
    counted = store.statistics()
    assert [counted[name] for name in ("inserted", "sampled", "size")] == [4, 3, 1]


def test_old_gradients_are_dropped_and_counted() -> None:
    store = make(evict_rule={"max_version_lag": 3})
    for number, version in enumerate((5, 2, 6), 1):
        store.insert_chunk(make_chunk(number, version=version))
    assert store.can_sample(2)
    assert first_numbers(store, 2) == [1, 3]
    assert store.statistics()["evicted"] == 1


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "rows of the environment": ({}, r"expected one gradient in a column 'extras/gradient'"),
    "float64": ({GRADIENT: np.zeros((1, 1, P))}, r"gradient from agent-0: float64 \[1, 1, 5\]"),
    "a table": ({GRADIENT: np.zeros((1, 1, P, 2), np.float32)}, r"float32 \[1, 1, 5, 2\]"),
    "NaN": ({GRADIENT: np.full((1, 1, P), np.nan, np.float32)}, r"holds a NaN or an infinity"),
    "inf": ({GRADIENT: np.full((1, 1, P), np.inf, np.float32)}, r"holds a NaN or an infinity"),
    "length": ({GRADIENT: np.zeros((1, 1, P + 1), np.float32)}, r"'extras/gradient' is float32"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_gradients_are_refused(name: str) -> None:
    changed, words = WRONG[name]
    store, chunk = make(), make_chunk(2, **changed)
    store.insert_chunk(make_chunk())
    if not changed:
        chunk.columns = {key: x for key, x in chunk.columns.items() if key != GRADIENT}
    with pytest.raises(DataError, match=words):
        store.insert_chunk(chunk)
    assert len(store.storage) == 1


WRONG_AT_FIRST: dict[str, tuple[dict[str, Any], str]] = {
    "length": ({GRADIENT: np.zeros((1, 1, P + 1), np.float32)}, r"keeps float32 \[1, 1, 5\]"),
    "a column more": ({"extras/other": np.zeros((1, 1), np.float32)}, r"'extras/other' is unknown"),
}


@pytest.mark.parametrize("name", WRONG_AT_FIRST)
def test_the_first_gradient_decides_nothing(name: str) -> None:
    changed, words = WRONG_AT_FIRST[name]
    fits = make_chunk(2)
    store = make(
        {
            name: {"type": str(each.dtype), "dim": list(each.shape[2:])}
            for name, each in fits.columns.items()
        }
    )
    with pytest.raises(DataError, match=words):
        store.insert_chunk(make_chunk(**changed))
    store.insert_chunk(fits)
    assert first_numbers(store, 1) == [2]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"replay_proportion": 0.5, "batch_size": 2}, r"replay_proportion is 0.5, but gradients"),
        ({"capacity": 1, "batch_size": 2}, r"capacity leaves 1 rows .* 2 streams x 1 steps"),
    ],
)
def test_settings_that_cannot_work_are_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(**changed)


def test_a_gradient_that_is_no_message_is_refused_before_the_run() -> None:
    given = {
        name: getattr(make(), name) for name in ("learner_config", "env_config", "session_config")
    }
    given["session_config"]["max_message_bytes"] = 1000
    store = GradientReplay(**given)
    store.check_start(900)
    with pytest.raises(ConfigError, match=r"max_message_bytes is 1000, but one chunk of 1 steps"):
        store.check_start(4000)


class TestGradients(ReplayContract):
    def make(self) -> Replay:
        return GradientReplay(**configs(capacity=20, batch_size=4))

    def chunk(self, number: int) -> Chunk:
        return make_chunk(number)


class TestGradientView(ViewContract):
    def make(self) -> View:
        return GradientView()

    def make_storage(self) -> ColumnStorage:
        return kept_in(1)

    def chunk(self, number: int) -> Chunk:
        return make_chunk(number)
