"""Sinks: what TensorBoard shows, and sinks that are slow or fail."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import metadata, plugin_data_pb2

from session.config.config import apply_overrides, keys_of
from session.config.constraints import check_values
from session.config.defaults import BASE_CONFIG
from session.errors import ConfigError
from session.folder import RunFolder
from session.tensorplex.groups import Place
from session.tensorplex.sinks.sink import Point, QueuedSink, ShownRun, Sink
from session.tensorplex.sinks.tensorboard import FIRST, TensorBoard
from tests.polling import until
from tests.session.made_run import STARTED, made_config, made_run
from tests.session.tensorplex.reading import read, scalars
from tests.session.tensorplex.rig import make_rig as make_rig

POINTS = [Point(STARTED + step, step, Place("agent-0", "agent/a"), step / 2) for step in range(10)]


@pytest.fixture
def shown(tmp_path: Path) -> ShownRun:
    config = made_config(session_config__stop__eval_return=475.0)
    config["recorded"] = {"changed": {"learner_config.algo.gamma": 0.9}}
    return ShownRun(made_run(tmp_path / "run", config=config), config, STARTED)


def plugin(shown: ShownRun, tag: str) -> Any:
    content = read(shown.folder.tensorboard).SummaryMetadata(tag).plugin_data.content
    return plugin_data_pb2.HParamsPluginData.FromString(content)


def test_tensorboard_shows_the_greedy_return_first_then_config_and_settings(
    shown: ShownRun,
) -> None:
    sink = TensorBoard(shown)
    sink.end({"status": "failed", "wall_seconds": 3.0}, [])
    assert sink.files[0].flush()
    reader = read(shown.folder.tensorboard)
    [layout] = reader.Tensors("custom_scalars__config__")
    charts = layout_pb2.Layout.FromString(layout.tensor_proto.string_val[0]).category[0].chart
    titles = [chart.title for chart in charts]
    assert titles == ["return/greedy", "return/train", "steps per second", "lag"]
    [text] = reader.Tensors("config")
    assert b"session_config.stop.eval_return: 475.0" in text.tensor_proto.string_val[0]
    start = plugin(shown, metadata.SESSION_START_INFO_TAG).session_start_info
    assert start.group_name == "run"
    assert start.hparams["goal"].string_value == "eval_return 475.0"
    assert start.hparams["algo.gamma"].number_value == 0.9
    end = plugin(shown, metadata.SESSION_END_INFO_TAG).session_end_info
    assert end.status == 2  # a failure


def test_the_greedy_return_comes_first_by_name_and_in_the_columns_of_hparams(
    shown: ShownRun,
) -> None:
    sink = TensorBoard(shown)
    for tag in ("agent.core/resent_chunks", "agent/episode_length", "return/greedy", "metrics/A"):
        record = {"kind": "scalar", "tag": tag, "value": 2.0, "step": 1, "time": STARTED}
        sink.store(record, {}, lambda tag: Place("learner", tag))
    assert sink.files[0].flush()
    tags = read(shown.folder.tensorboard).Tags()["scalars"]
    # The page Time Series, and HParams of one run, sort them so.
    assert min(tags) == FIRST["return/greedy"]
    [point] = scalars(shown.folder.tensorboard, FIRST["return/greedy"])
    assert point == (STARTED, 1, 2.0)


def test_a_run_is_the_same_for_a_tracker_after_its_folder_was_moved(
    shown: ShownRun, tmp_path: Path
) -> None:
    shown.config["run"]["id"] = "0123456789ab"
    moved = ShownRun(RunFolder(tmp_path / "other"), shown.config, STARTED)
    assert shown.identity == moved.identity == "0123456789ab"
    del shown.config["run"]["id"]  # a run that began before ids were kept
    assert shown.identity != "0123456789ab"
    assert shown.identity != moved.identity


def test_a_trial_leaves_its_row_to_its_tuning(shown: ShownRun) -> None:
    shown.config["run"]["trial"] = "trial-000"
    sink = TensorBoard(shown)
    sink.end({"status": "stopped"}, [])
    assert sink.files[0].flush()
    assert metadata.SESSION_START_INFO_TAG not in read(shown.folder.tensorboard).Tags()["tensors"]


def test_an_unknown_sink_is_refused_with_the_nearest() -> None:
    config = apply_overrides(made_config(), ["session_config.tensorplex.sinks=[tensorbord]"])
    with pytest.raises(ConfigError, match="did you mean tensorboard"):
        check_values(config, keys_of(BASE_CONFIG))


class Kept(Sink):
    """A sink in this process that blocks or fails when it is asked to."""

    def __init__(self, run: ShownRun | None = None) -> None:
        self.points: list[Point] = []
        self.outcome: list[Any] = []
        self.free = threading.Event()
        self.free.set()
        self.fails = 0

    def add(self, points: Sequence[Point]) -> None:
        self.free.wait()
        if self.fails:
            self.fails -= 1
            raise OSError("no such server")
        self.points += points

    def end(self, result: Mapping[str, Any], pictures: Sequence[Path]) -> None:
        self.outcome = [result, *pictures]


@pytest.fixture
def kept() -> Iterator[Kept]:
    kept = Kept()
    yield kept
    kept.free.set()


def test_a_sink_in_a_thread_gets_all_points_and_then_the_result(
    kept: Kept, shown: ShownRun
) -> None:
    queued = QueuedSink(lambda run: kept, shown)
    for _ in range(300):
        queued.add(POINTS)
    queued.end({"status": "stopped"}, [Path("a.png")])
    queued.wait(60.0)
    assert kept.points == POINTS * 300
    assert kept.outcome == [{"status": "stopped"}, Path("a.png")]
    assert (queued.dropped, queued.problem) == (0, "")


def test_a_sink_that_blocks_costs_its_oldest_points_and_no_time(
    kept: Kept, shown: ShownRun
) -> None:
    kept.free.clear()
    queued = QueuedSink(lambda run: kept, shown)
    queued.add(POINTS)
    until(lambda: not queued._points)
    for _ in range(1001):
        queued.add(POINTS)
    assert (queued.dropped, len(queued._points)) == (10, 10_000)
    assert queued.problem == "it takes too long, so that more than 10,000 points wait"
    queued.end({}, [])
    queued.wait(0.01)
    # Those that the thread had taken, too.
    assert queued.losses == "points lost: 10,020, of steps 0 to 9"
    kept.free.set()
    until(lambda: not queued._thread.is_alive())


@pytest.mark.parametrize("fails", [1, 3])
def test_a_sink_that_is_away_for_a_while_gets_all_points(
    kept: Kept, shown: ShownRun, fails: int
) -> None:
    starts = iter(range(3))

    def make(run: ShownRun) -> Kept:
        if next(starts) < 2:
            raise OSError("http://me:hunter2@host answers 503")
        return kept

    kept.fails = fails
    queued = QueuedSink(make, shown, pause_seconds=1e-6)
    queued.add(POINTS)
    until(lambda: kept.points)
    queued.end({"status": "stopped"}, [])
    queued.wait(60.0)
    assert (kept.points, kept.outcome) == (POINTS, [{"status": "stopped"}])
    assert (queued.losses, queued.dropped) == ("", 0)
    assert queued.problem.startswith("OSError('http://...@host answers 503')")


def test_points_that_a_sink_refuses_again_and_again_are_dropped_and_counted(
    kept: Kept, shown: ShownRun
) -> None:
    kept.fails = 4
    queued = QueuedSink(lambda run: kept, shown, pause_seconds=1e-6)
    queued.add(POINTS[2:5])
    queued.add([Point(1.0, 99, Place("replay-0", "size"), 1.0)])  # counts rows, not steps
    until(lambda: queued.dropped)
    queued.add(POINTS[:3])
    queued.end({}, [])
    queued.wait(60.0)
    assert kept.points[-3:] == POINTS[:3]
    assert queued.losses.endswith(", of steps 2 to 4")


def test_a_sink_that_stays_away_is_asked_once_more_at_the_end(shown: ShownRun) -> None:
    asked = threading.Semaphore(0)

    def make(run: ShownRun) -> Sink:
        asked.release()
        raise OSError("503")

    queued = QueuedSink(make, shown, pause_seconds=1e6)
    queued.add(POINTS)
    assert asked.acquire(timeout=60.0)
    queued.end({}, [])
    queued.wait(60.0)
    assert not queued._thread.is_alive()
    assert asked.acquire(blocking=False)
    assert queued.losses == "points lost: 10, of steps 0 to 9"
