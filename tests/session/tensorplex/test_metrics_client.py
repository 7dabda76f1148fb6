"""The metrics client: what it puts on its channel, what it refuses, what it drops."""

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest

from session.errors import UsageError
from session.process.heartbeat import State
from session.tensorplex.metrics_client import TensorplexClient
from session.wire.telemetry_buffer import Channel
from tests.clock import HandClock

Put = tuple[dict[str, Any], dict[str, Any]]


class Kept(Channel):
    """A channel whose records can be looked at."""

    def __init__(self, buffer: int = 100) -> None:
        super().__init__(None, "tensorplex", buffer=buffer)

    def only(self) -> Put:
        assert len(self) == 1
        record, arrays = self._records[0]
        return record, dict(arrays)


def client(channel: Channel, client_id: str = "agent/0") -> TensorplexClient:
    return TensorplexClient(client_id, channel, clock=HandClock(12.5))


def test_a_scalar_has_the_time_of_its_source() -> None:
    kept = Kept()
    client(kept).add_scalar("loss", np.float32(0.5), 7)
    expected = {
        "kind": "scalar",
        "id": "agent/0",
        "tag": "loss",
        "value": 0.5,
        "step": 7,
        "time": 12.5,
    }
    assert kept.only() == (expected, {})
    assert msgpack.packb(kept.only()[0])


def test_a_scalar_without_a_step_is_the_next_of_its_tag() -> None:
    kept = Kept()
    early = TensorplexClient.early("replay/0")
    for tag in ("a", "b", "a"):
        early.add_scalar(tag, 1)
    joined = early.join(client(kept, "replay/2"))
    joined.add_scalar("a", 1)
    joined.add_scalar("b", 1, 9)
    found = [(record["id"], record["tag"], record["step"]) for record, _ in kept._records]
    steps = zip("abaab", (0, 0, 1, 2, 9), strict=True)
    assert found == [("replay/2", tag, step) for tag, step in steps]
    assert {record["time"] for record, _ in kept._records} == {12.5}
    with pytest.raises(UsageError):
        joined.add_scalar("", 1)


def test_scalars_are_one_record() -> None:
    kept = Kept()
    client(kept).add_scalars({"a": 1, "b": np.float64(2)}, np.int64(3))
    record, _ = kept.only()
    assert (record["kind"], record["values"], record["step"]) == ("scalars", {"a": 1, "b": 2}, 3)


def test_scalars_without_a_step_are_the_next_of_their_tags() -> None:
    kept = Kept()
    one = client(kept)
    one.add_scalars({"a": 1, "b": 2})
    one.add_scalar("b", 3)
    one.add_scalars({"a": 4, "b": 5})
    one.add_scalar("a", 6)
    one.add_scalars({})
    assert [record["step"] for record, _ in kept._records] == [0, 1, 2, 3]


def test_no_scalars_are_no_record() -> None:
    kept = Kept()
    client(kept).add_scalars({}, 3)
    assert len(kept) == 0


def test_steps_are_exact_beyond_the_integers_of_a_float() -> None:
    kept = Kept()
    client(kept).add_scalar("a", 1, 2**53 + 1)
    assert kept.only()[0]["step"] == 2**53 + 1


def test_histogram_is_counted_at_the_source_without_nan_and_infinity() -> None:
    kept = Kept()
    values = np.array([[0.0, 1.0], [1.0, np.nan], [np.inf, 3.0]], np.float32)
    client(kept).add_histogram("w", values, 1)
    record, arrays = kept.only()
    assert {name: record[name] for name in ("min", "max", "num", "sum", "sum_squares")} == {
        "min": 0.0,
        "max": 3.0,
        "num": 4,
        "sum": 5.0,
        "sum_squares": 11.0,
    }
    assert arrays["counts"].sum() == 4
    assert len(arrays["edges"]) == len(arrays["counts"]) + 1


@pytest.mark.parametrize("values", [[], [np.nan, np.inf]])
def test_histogram_of_nothing_is_no_record(values: list[float]) -> None:
    kept = Kept()
    client(kept).add_histogram("w", values, 1)
    assert len(kept) == 0


def test_histogram_of_huge_numbers_is_finite() -> None:
    kept = Kept()
    client(kept).add_histogram("w", np.array([-1.7e308, 1.7e308]), 1)
    record, arrays = kept.only()
    assert np.isfinite(record["sum_squares"])
    assert np.isfinite(arrays["edges"]).all()


def test_image_is_a_copy() -> None:
    kept = Kept()
    frame = np.zeros((4, 5), np.uint8)
    client(kept).add_image("view", frame, 1)
    frame += 1
    image = kept.only()[1]["image"]
    assert image.shape == (4, 5, 1)
    assert not image.any()


def test_video_is_a_stack_of_frames() -> None:
    kept = Kept()
    client(kept).add_video("play", np.zeros((3, 4, 5, 3), np.uint8), 1, fps=10)
    record, arrays = kept.only()
    assert (record["fps"], arrays["frames"].shape) == (10.0, (3, 4, 5, 3))


def test_too_large_an_array_is_dropped_and_counted() -> None:
    kept = Kept()
    sender = client(kept)
    sender.add_image("view", np.zeros((5000, 4000, 1), np.uint8), 1)
    assert (len(kept), sender.dropped) == (0, 1)


def test_text_has_a_bound_and_only_characters_that_can_travel() -> None:
    kept = Kept()
    client(kept).add_text("note", "\udce4" + "x" * 100_000, 1)
    text = kept.only()[0]["text"]
    assert text.startswith("\\udce4xx")
    assert text.endswith("... (100001 characters)")
    assert len(text) < 70_000


REFUSED: list[tuple[Callable[[Any], None], str]] = [
    (lambda c: c.add_scalar("a", "3", 1), "metric 'a' of agent/0: expected a number, got '3'"),
    (lambda c: c.add_scalar("a", None, 1), "got 'None' of type NoneType"),
    (lambda c: c.add_scalar("a", np.zeros(2), 1), "metric 'a' of agent/0: expected a number"),
    (lambda c: c.add_scalar("", 1, 1), "metric tag ''"),
    (lambda c: c.add_scalar("a", 1, "1"), "global_step of agent/0: expected a whole number"),
    (lambda c: c.add_scalar("a", 1, float("nan")), "global_step of agent/0"),
    (lambda c: c.add_scalar("a", 1, 1 << 63), "global_step of agent/0"),
    (lambda c: c.add_scalars({"a": 1, "b": "x"}, 1), "metric 'b' of agent/0"),
    (lambda c: c.add_histogram("a", ["x"], 1), "histogram 'a' of agent/0: expected numbers"),
    (lambda c: c.add_histogram("a", [[1], [1, 2]], 1), "metric 'a' of agent/0: no array"),
    (lambda c: c.add_image("a", np.zeros((4, 4)), 1), "expected uint8 .* got float64"),
    (lambda c: c.add_image("a", np.zeros((4, 4, 2), np.uint8), 1), r"got uint8 \[4, 4, 2\]"),
    (lambda c: c.add_image("a", np.zeros((0, 4, 1), np.uint8), 1), r"got uint8 \[0, 4, 1\]"),
    (lambda c: c.add_video("a", np.zeros((4, 4, 3), np.uint8), 1), r"expected uint8 \[T, H, W"),
    (lambda c: c.add_video("a", np.zeros((1, 4, 4, 3), np.uint8), 1, fps=0), "fps is 0"),
    (lambda c: c.add_text("a", 3, 1), "text 'a' of agent/0: got int"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_wrong_types_are_refused(call: Callable[[Any], None], message: str) -> None:
    kept = Kept()
    with pytest.raises(UsageError, match=message):
        call(client(kept))
    assert len(kept) == 0


@pytest.mark.parametrize("kind", ["add_audio", "add_embedding", "export_json"])
def test_other_kinds_are_refused(kind: str) -> None:
    with pytest.raises(AttributeError, match=f"no '{kind}'"):
        getattr(client(Kept()), kind)


def test_unsafe_client_id_is_refused() -> None:
    with pytest.raises(UsageError, match="write <group>/<id>"):
        client(Kept(), "agent/../x")


def test_without_a_server_memory_is_bounded_and_the_oldest_go() -> None:
    kept = Kept(buffer=10)
    sender = client(kept)
    for step in range(25):
        sender.add_scalar("a", 1.0, step)
    assert (len(kept), sender.dropped) == (10, 15)
    assert kept._records[0][0]["step"] == 15
    sender.close()
    assert sender.dropped == 25


def test_heartbeat_says_what_the_process_is() -> None:
    kept = Kept()
    client(kept).heartbeat(State.running, 5, {"queue": 3})
    record, _ = kept.only()
    assert {key: record[key] for key in ("kind", "state", "incarnation", "status", "time")} == {
        "kind": "heartbeat",
        "state": "running",
        "incarnation": 5,
        "status": {"queue": 3.0},
        "time": 12.5,
    }
    assert record["pid"] > 1
    assert record["rss_bytes"] > 1 << 20
