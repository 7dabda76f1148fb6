"""Event files, read back with TensorBoard's own reader."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensorboard.util import tensor_util

from session.tensorplex.event_files import EventFile, summary_values
from session.tensorplex.metrics_client import TensorplexClient
from tests.clock import HandClock
from tests.session.tensorplex.reading import read, scalars
from tests.session.tensorplex.test_metrics_client import Kept


def write(folder: Path, kept: Kept) -> None:
    """Writes what clients have put on a channel."""
    file = EventFile(folder, 12.0)
    for record, arrays in kept._records:
        values = summary_values(record, arrays, lambda tag: tag)
        file.add_values(record["time"], record["step"], values)
    assert file.flush()


@pytest.fixture
def kept() -> Kept:
    return Kept(buffer=100_000)


@pytest.fixture
def client(kept: Kept) -> TensorplexClient:
    return TensorplexClient("agent/0", kept, clock=HandClock(12.25))


def test_scalars_come_back_as_they_were_sent(
    tmp_path: Path, kept: Kept, client: TensorplexClient
) -> None:
    values = [0.1, -3.0, 0.0, 1e38, 1e-40, math.inf, -math.inf, 1e300, 3]
    for step, value in enumerate(values):
        client.add_scalar("a", value, step)
    client.add_scalars({"b": 1.5, "c/d": 2.5}, 2**40)
    client.add_scalar("n", math.nan, -1)
    write(tmp_path / "x", kept)
    with np.errstate(over="ignore"):
        expected = [float(np.float32(value)) for value in values]
    assert scalars(tmp_path / "x", "a") == [(12.25, i, v) for i, v in enumerate(expected)]
    assert scalars(tmp_path / "x", "b") == [(12.25, 2**40, 1.5)]
    assert scalars(tmp_path / "x", "c/d") == [(12.25, 2**40, 2.5)]
    [(_, step, value)] = scalars(tmp_path / "x", "n")
    assert step == -1
    assert math.isnan(value)


def test_curve_whose_steps_go_back_keeps_all_its_points(
    tmp_path: Path, kept: Kept, client: TensorplexClient
) -> None:
    steps = [0, 1000, 2000, 0, 1000]  # a restarted component counts anew
    for step in steps:
        client.add_scalar("a", 1, step)
    write(tmp_path / "agent/0", kept)
    assert [step for _, step, _ in scalars(tmp_path / "agent/0", "a")] == steps


def test_histogram_comes_back(tmp_path: Path, kept: Kept, client: TensorplexClient) -> None:
    numbers = np.random.default_rng(0).normal(size=1000)
    client.add_histogram("w", numbers, 3)
    write(tmp_path / "x", kept)
    [event] = read(tmp_path / "x").Histograms("w")
    seen = event.histogram_value
    counts, edges = np.histogram(numbers, 64)
    assert (event.step, seen.num) == (3, 1000)
    assert (seen.min, seen.max) == (numbers.min(), numbers.max())
    assert seen.sum == pytest.approx(numbers.sum())
    assert seen.sum_squares == pytest.approx((numbers**2).sum())
    assert seen.bucket == counts.tolist()
    assert seen.bucket_limit == edges[1:].tolist()


def test_image_and_video_come_back(tmp_path: Path, kept: Kept, client: TensorplexClient) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), np.uint8)
    client.add_image("view", frames[0], 1)
    client.add_video("play", frames, 2, fps=10)
    write(tmp_path / "x", kept)
    reader = read(tmp_path / "x")
    [view], [play] = reader.Images("view"), reader.Images("play")
    assert [(e.step, e.width, e.height) for e in (view, play)] == [(1, 5, 4), (2, 5, 4)]
    with Image.open(io.BytesIO(view.encoded_image_string)) as image:
        assert np.array_equal(np.asarray(image), frames[0])
    with Image.open(io.BytesIO(play.encoded_image_string)) as image:
        assert image.n_frames == 3  # type: ignore[attr-defined]


def test_text_comes_back(tmp_path: Path, kept: Kept, client: TensorplexClient) -> None:
    client.add_text("note", "*greetings* to \u00e4 and \udce4", 4)
    write(tmp_path / "x", kept)
    [event] = read(tmp_path / "x").Tensors("note")
    text = tensor_util.make_ndarray(event.tensor_proto).item()
    assert (event.step, text.decode()) == (4, "*greetings* to \u00e4 and \\udce4")


def test_a_restarted_writer_goes_on_in_a_later_file(
    tmp_path: Path, kept: Kept, client: TensorplexClient
) -> None:
    client.add_scalar("a", 1, 1)
    write(tmp_path / "x", kept)
    first = next((tmp_path / "x").iterdir())
    with first.open("ab") as file:
        file.write(b"half a record")  # killed while it wrote
    write(tmp_path / "x", kept)
    names = sorted(path.name for path in (tmp_path / "x").iterdir())
    assert names[0] == first.name
    assert len(names) == 2
    assert len(scalars(tmp_path / "x", "a")) == 2


BAD: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"kind": "shell", "tag": "a"}, {}),
    ({"kind": "scalar", "tag": "a", "value": "7"}, {}),
    ({"kind": "scalar", "tag": "a", "value": None}, {}),
    ({"kind": "scalar", "tag": "a"}, {}),
    ({"kind": "scalars", "values": [1]}, {}),
    ({"kind": "image", "tag": "a"}, {"image": np.zeros((2, 2, 2), np.uint8)}),
    ({"kind": "image", "tag": "a"}, {"image": np.zeros((2, 2, 3), np.float32)}),
    ({"kind": "image", "tag": "a"}, {"image": np.zeros((), np.uint8)}),
    ({"kind": "video", "tag": "a", "fps": 0}, {"frames": np.zeros((2, 2, 2, 3), np.uint8)}),
    ({"kind": "histogram", "tag": "a"}, {"counts": np.zeros(3), "edges": np.zeros(3)}),
]


@pytest.mark.parametrize(("record", "arrays"), BAD)
def test_bad_records_raise_and_write_nothing(
    record: dict[str, Any], arrays: dict[str, Any]
) -> None:
    with pytest.raises((LookupError, TypeError, ValueError, AttributeError)):
        summary_values(record, arrays, lambda tag: tag)


@pytest.mark.parametrize(
    ("time", "step"), [("now", 1), (math.nan, 1), (None, 1), (1.0, 2**63), (1.0, "1"), (1.0, None)]
)
def test_bad_stamps_raise_and_add_nothing(tmp_path: Path, time: Any, step: Any) -> None:
    file = EventFile(tmp_path, 1.0)
    before = file.held_bytes
    with pytest.raises((TypeError, ValueError)):
        file.add_values(time, step, [])
    assert file.held_bytes == before
