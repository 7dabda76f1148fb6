"""Rows that are not rows of this run are not taken, and those that are, are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal_like.experience.chunk import Chunk
from surreal_like.replay.chunk_validator import WRONG_COLUMNS, WRONG_VALUES, ChunkValidator

T, N = 5, 2
BOX = {"type": "float32", "dim": [3]}
PARTS = {"position": BOX, "kind": {"type": "int64", "dim": [], "num": 4}}


# Within the bounds of what nothing is known.
FROM_FAR = {"obs/position": 1e6, "reward": -1e6, "extras/anything": -1e6, "version": 1_006}


def validator(obs: Any = None, action: Any = None, **env: Any) -> ChunkValidator:
    specs = {"obs_spec": obs or PARTS, "action_spec": action or {"type": "discrete", "dim": [2]}}
    return ChunkValidator({**specs, "frame_stack": 0, **env})


def columns() -> dict[str, Any]:
    return {
        "step_type": np.array([[0, 1], [1, 2], [1, 0], [2, 1], [0, 1]], np.uint8),
        "reward": np.linspace(-1e3, 1e3, T * N, dtype=np.float32).reshape(T, N),
        "discount": np.array([[1, 0.5], [1, 0], [1, -0.0], [1, 1], [0, 1]], np.float32),
        "version": np.zeros((T, N), np.int64),
        "obs/position": np.full((T, N, 3), -1e30, np.float32),
        "obs/kind": np.full((T, N), 3, np.int64),
        "action": np.array([[0, 1]] * T, np.int64),
        "extras/anything": np.full((T, N), np.nan, np.float32),
    }


def chunk(changed: dict[str, Any], *, sequence: int = 1, sender: str = "agent-0") -> Chunk:
    return Chunk(changed, sequence, [0, 1], sender=sender)


def spoilt(name: str, value: Any) -> dict[str, Any]:
    changed = columns()
    changed[name][3, 1] = value
    return changed


def test_what_the_specs_allow_passes_also_where_sums_would_overflow() -> None:
    assert validator().refusal(chunk(columns())) is None


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("action", 99, "action: 99 at [3, 1] of [5, 2], expected 0 to below 2"),
        ("action", -1, "action: -1 at [3, 1] of [5, 2], expected 0 to below 2"),
        ("obs/position", np.nan, "obs/position: NaN at [3, 1, 0]"),
        ("obs/position", np.inf, "obs/position: inf at [3, 1, 0]"),
        ("obs/kind", 4, "obs/kind: 4 at [3, 1]"),
        ("reward", np.nan, "reward: a value that is not finite"),
        ("reward", -np.inf, "reward: a value that is not finite"),
        ("step_type", 3, "step_type: 3, expected at most 2"),
        ("discount", 1.001, "discount: a value outside of 0 to 1"),
        ("discount", -0.5, "discount: a value outside of 0 to 1"),
        ("discount", np.nan, "discount: a value outside of 0 to 1"),
    ],
)
def test_a_value_that_no_environment_of_this_run_gives(name: str, value: Any, said: str) -> None:
    refusal = validator().refusal(chunk(spoilt(name, value)))
    assert refusal is not None
    assert refusal[0] == WRONG_VALUES
    assert refusal[1].startswith(said)


def test_actions_of_other_kinds() -> None:
    box = validator(BOX, {"type": "continuous", "dim": [3], "low": -1.0, "high": 1.0})
    given = columns()
    given["obs"], given["action"] = given.pop("obs/position"), np.full((T, N, 3), 7.0, np.float32)
    # What is outside of the bounds is clipped by agents, and no mistake here.
    assert box.refusal(chunk(given)) is None
    given["action"][0, 0, 1] = np.nan
    assert box.refusal(chunk(given)) == (
        WRONG_VALUES,
        "action: NaN at [0, 0, 1] of [5, 2, 3], expected a finite number",
    )
    many = validator(BOX, {"type": "multi_discrete", "dim": [3, 5]})
    given["action"] = np.array([[[2, 4]] * N] * T)
    assert many.refusal(chunk(given)) is None
    given["action"][1, 1] = [3, 0]
    assert many.refusal(chunk(given)) == (
        WRONG_VALUES,
        "action: 3 at [1, 1, 0] of [5, 2, 2], expected 0 to below 3",
    )


def test_columns_that_are_not_those_of_the_specs() -> None:
    given = columns()
    given["obs/position"] = given["obs/position"].astype(np.float64)
    assert validator().refusal(chunk(given)) == (
        WRONG_COLUMNS,
        "column 'obs/position' has rows of float64 [3], not float32 [3]",
    )
    given = columns()
    given["action"] = np.zeros((T, N, 1), np.int64)
    assert validator().refusal(chunk(given)) == (
        WRONG_COLUMNS,
        "column 'action' has rows of int64 [1], not int64 []",
    )
    given = columns()
    del given["obs/kind"]
    assert validator().refusal(chunk(given)) == (WRONG_COLUMNS, "column 'obs/kind' is missing")


def test_rows_hold_single_frames_where_stacks_are_seen() -> None:
    stacked = validator({"type": "float32", "dim": [4, 3]}, frame_stack=4)
    given = columns()
    given["obs"] = given.pop("obs/position")
    assert stacked.refusal(chunk(given)) is None


def test_without_specs_it_looks_at_what_all_runs_share() -> None:
    bare = ChunkValidator({"obs_spec": {}, "action_spec": {}, "frame_stack": 0})
    assert bare.refusal(chunk(spoilt("action", 99))) is None
    assert bare.refusal(chunk(spoilt("reward", np.nan))) is not None


def test_chunks_of_joined_and_of_faulty_senders_are_checked_each_time() -> None:
    one, bad = validator(), spoilt("action", 99)
    assert one.refusal(chunk(bad, sequence=2)) is None
    assert one.refusal(chunk(bad, sequence=17)) is not None
    assert one.refusal(chunk(bad, sequence=18)) is not None
    assert one.refusal(chunk(bad, sequence=18, sender="agent-1")) is None
    one.suspect("agent-1")
    assert one.refusal(chunk(bad, sequence=18, sender="agent-1")) is not None


def far(name: str = "reward", value: Any = 1.0) -> dict[str, Any]:
    """The columns of a joined agent, with one value of one column."""
    given = {**columns(), "obs/position": np.ones((T, N, 3), np.float32)}
    given["discount"] = np.where(given["step_type"] == 2, given["discount"], 1).astype(np.float32)
    given["reward"] *= given["step_type"] != 0
    given |= {"extras/anything": np.ones((T, N), np.float32), "extras/count": np.ones((T, N), "i8")}
    given[name][3, 1] = value
    return given


BEYOND = [
    ("reward", 3e38, "reward: 3.0000"),
    ("reward", -1.1e6, "reward: -1100000.0 at [3, 1] of [5, 2], expected at least -1000000.0"),
    ("obs/position", 1e12, "obs/position: 999999995904.0 at [3, 1, 0]"),
    ("extras/anything", np.nan, "extras/anything: NaN at [3, 1] of [5, 2], expected a finite"),
    ("extras/anything", 2e6, "extras/anything: 2000000.0 at [3, 1] of [5, 2], expected at most"),
    ("extras/count", -(2**62), "extras/count: -4611686018427387904 at [3, 1]"),
    ("version", 2**60, "version: 1152921504606846976, the newest one of this run is 7"),
    ("version", -1, "version: -1, the newest one of this run is 7"),
    ("discount", 1.5, "discount: a value outside of 0 to 1"),
]


@pytest.mark.parametrize(("name", "value", "said"), BEYOND)
def test_values_of_joined_agents_have_bounds(name: str, value: Any, said: str) -> None:
    one = validator()
    one.newest_version = 7
    one.distrust("agent-1000")
    assert one.refusal(chunk(far(name, value), sequence=3, sender="agent-1000")) == (
        WRONG_VALUES,
        Beginning(said),
    )


class Beginning(str):
    """Equal to each text that begins with it."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str(other).startswith(self)


@pytest.mark.parametrize("name", FROM_FAR)
def test_values_at_the_bounds_pass(name: str) -> None:
    one = validator()
    one.newest_version = 7
    one.distrust("agent-1000")
    assert one.refusal(chunk(far(name, FROM_FAR[name]), sender="agent-1000")) is None


def test_frames_before_an_unroll_have_bounds_too() -> None:
    one = validator(BOX)
    one.distrust("agent-1000")
    given = far()
    given["obs"] = given.pop("obs/position")
    del given["obs/kind"]
    sent = chunk(given, sender="agent-1000")
    sent.lead_in = {"obs": np.full((1, N, 3), np.inf, np.float32)}
    assert one.refusal(sent) == (WRONG_VALUES, Beginning("obs: inf at [0, 0, 0]"))


def test_bounds_of_the_spec_and_of_the_config_replace_the_usual_ones() -> None:
    highest = float(np.finfo(np.float32).max)
    box = {**BOX, "low": [-2e9, -1.0, -np.inf], "high": [2e9, 1.0, highest]}
    one = validator({"position": box, "kind": PARTS["kind"]}, reward_range=[-1, 5e7])
    one.distrust("agent-1000")

    def refusal(name: str, value: Any) -> str:
        given = far()
        given["reward"][:] = 0.0
        given[name][3, 1] = value
        wrong = one.refusal(chunk(given, sender="agent-1000"))
        return "" if wrong is None else wrong[1]

    assert refusal("obs/position", [1.5e9, 0.0, -9e5]) == ""
    assert "[3, 1, 0] of [5, 2, 3], expected at most 2000000000.0" in refusal(
        "obs/position", [3e9, 0.0, 0.0]
    )
    assert "expected at most 1.0" in refusal("obs/position", [0.0, 1.5, 0.0])
    # An infinite bound, and one at the end of the dtype, are none.
    assert "expected at least -1000000.0" in refusal("obs/position", [0.0, 0.0, -2e6])
    assert "expected at most 1000000.0" in refusal("obs/position", [0.0, 0.0, 1e30])
    assert refusal("reward", 4e7) == ""
    assert "reward: -1.5" in refusal("reward", -1.5)


def test_gradients_of_joined_agents_have_bounds() -> None:
    bare = ChunkValidator({"obs_spec": {}, "action_spec": {}})
    bare.distrust("agent-1000")
    row: dict[str, Any] = {
        "step_type": np.zeros((1, 1), np.uint8),
        "reward": np.zeros((1, 1), np.float32),
        "discount": np.ones((1, 1), np.float32),
        "version": np.ones((1, 1), np.int64),
        "extras/gradient": np.ones((1, 1, 30), np.float32),
        "extras/rows": np.ones((1, 1), np.int64),
    }
    sent = Chunk(row, 2, [0], sender="agent-1000")
    assert bare.refusal(sent) is None
    row["extras/gradient"][0, 0, 7] = 1e8
    assert bare.refusal(sent) == (WRONG_VALUES, Beginning("extras/gradient: 100000000.0 at"))


def test_nothing_of_that_holds_for_the_agents_of_the_run() -> None:
    for name, value, _ in BEYOND[:2]:
        assert validator().refusal(chunk(spoilt(name, value))) is None


def test_values_above_1e12_are_reported_once_per_sender_and_refused_after_a_roll_back() -> None:
    one, seen = validator(), []
    one.large = lambda sender, detail: seen.append((sender, detail))
    given = columns()
    given["obs/position"][:] = 9e11
    assert one.refusal(chunk(given)) is None
    assert seen == []
    given["reward"][2, 1] = -3e38
    for sequence in (1, 2, 17):
        assert one.refusal(chunk(given, sequence=sequence)) is None
    one.refusal(chunk(given, sender="agent-1"))
    text = "reward: 3e+38, above 1e+12"
    assert seen == [("agent-0", text), ("agent-1", text)]
    one.suspect_all()
    assert one.refusal(chunk(given, sequence=2)) == (WRONG_VALUES, text)
    given["reward"][2, 1] = 0.0
    assert one.refusal(chunk(given, sequence=2)) is None


MASKED = {"seen": BOX, "action_mask": {"type": "int8", "dim": [5]}}
# A change of the rows of a guest -> the beginning of the detail; empty: agents do the same.
RULES: list[tuple[str, dict[str, Any], str]] = [
    ("nothing", {}, ""),
    ("a last row takes no action", {"action": (3, 0, [9, 9])}, "action: 9 at [3, 0, 0]"),
    ("a last row may have no legal action", {"action_mask": (3, 0, 0)}, ""),
    ("masked", {"action": (1, 1, [1, 2])}, "action: [1, 2] at [1, 1] is masked by"),
    ("the row behind an unroll takes none", {"action": (4, 1, [1, 2])}, ""),
    ("none legal", {"action_mask": (2, 0, 0)}, "obs/action_mask: [0, 0, 0, 0, 0] at [2, 0]"),
    ("none of a choice", {"action_mask": (4, 1, [1, 1, 0, 0, 0])}, "obs/action_mask: [1, 1, 0"),
    ("ends twice", {"step_type": (2, 0, 2)}, "step_type: an episode ends, or begins, without"),
    ("begins within", {"step_type": (1, 0, 0)}, "step_type: an episode ends, or begins, without"),
    ("goes on behind the end", {"step_type": (4, 0, 1)}, "step_type: an episode ends, or begins"),
    ("terminates", {"discount": (3, 0, 0.0)}, ""),
    ("terminates within", {"discount": (2, 0, 0.0)}, "discount: not 1, and no termination, at [2"),
    ("fades", {"discount": (3, 0, 0.5)}, "discount: not 1, and no termination, at [3, 0] of"),
    ("reward before", {"reward": (4, 0, 1.0)}, "reward: not 0 at the first row of an episode"),
]


@pytest.mark.parametrize(("what", "change", "said"), RULES)
def test_what_the_side_of_agents_refuses_is_refused_of_guests(
    what: str, change: dict[str, Any], said: str
) -> None:
    one = validator(MASKED, {"type": "multi_discrete", "dim": [2, 3]})
    one.distrust("agent-1000")
    shape = T, N
    given: dict[str, Any] = {
        "step_type": np.array([[0, 1], [1, 1], [1, 1], [2, 1], [0, 1]], np.uint8),
        "reward": np.zeros(shape, np.float32),
        "discount": np.ones(shape, np.float32),
        "version": np.zeros(shape, np.int64),
        "obs/seen": np.zeros((*shape, 3), np.float32),
        "obs/action_mask": np.tile(np.array([1, 1, 0, 1, 0], np.int8), (*shape, 1)),
        "action": np.tile(np.array([1, 1]), (*shape, 1)),
    }
    for name, (step, stream, value) in change.items():
        given[f"obs/{name}" if name == "action_mask" else name][step, stream] = value
    sent = chunk(given, sender="agent-1000")
    sent.overlap = 1
    refused = one.refusal(sent)
    assert (refused is not None) == bool(said), (what, refused)
    if refused is not None:
        assert refused == (WRONG_VALUES, Beginning(said))


@pytest.mark.parametrize(
    ("clips", "value", "refused"), [(True, 7, 0), (False, 7, 1), (False, 1, 0)]
)
def test_bounds_of_actions_hold_where_agents_do_not_clip_them(
    clips: bool, value: float, refused: bool
) -> None:
    action = {"type": "continuous", "dim": [], "low": 0.5, "high": 1.0}
    one = validator(BOX, action, clip_action=clips)
    one.distrust("agent-1000")
    given = {**far(), "obs": np.zeros((T, N, 3), np.float32)}
    given["action"] = np.ones((T, N), np.float32)
    given["action"][given["step_type"] == 2] = 0.0
    given["action"][1, 0] = value
    assert (one.refusal(chunk(given, sender="agent-1000")) is not None) == refused


@pytest.mark.parametrize(
    ("most", "said"),
    [
        ((4, 2), "chunk of 5 steps, expected at most 4"),
        ((5, 1), "chunk of 2 streams"),
        ((5, 2), ""),
    ],
)
def test_chunks_of_guests_are_no_larger_than_those_of_agents(
    most: tuple[int, int], said: str
) -> None:
    specs = {"obs_spec": PARTS, "action_spec": {"type": "discrete", "dim": [2]}, "frame_stack": 0}
    one = ChunkValidator(specs, most=most)
    one.distrust("agent-1000")
    refused = one.refusal(chunk(far(), sender="agent-1000"))
    assert refused == ((WRONG_VALUES, Beginning(said)) if said else None)
    assert one.refusal(chunk(far())) is None


@pytest.mark.parametrize(("name", "value"), [("reward", 2e12), ("extras/anything", 2e12)])
def test_values_of_rows_that_are_refused_are_not_reported(name: str, value: float) -> None:
    one, seen = validator(), []
    one.large = lambda sender, detail: seen.append(sender)
    one.distrust("agent-1000")
    assert one.refusal(chunk(far(name, value), sender="agent-1000")) is not None
    assert seen == []
    # Within a range of rewards of the user's they are stored, and so reported.
    wide = validator(reward_range=[-1e13, 1e13])
    wide.large = lambda sender, detail: seen.append(sender)
    wide.distrust("agent-1000")
    assert wide.refusal(chunk(far("reward", 2e12), sender="agent-1000")) is None
    assert seen == ["agent-1000"]
