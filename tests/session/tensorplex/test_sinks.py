"""Sinks: files, hyperparameters and layout, those of other packages, and those that fail."""

import contextlib
import csv
import math
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import metadata, plugin_data_pb2

from session.addons import load
from session.config.config import apply_overrides, keys_of
from session.config.constraints import check_values
from session.config.defaults import BASE_CONFIG
from session.errors import ConfigError, MissingExtra
from session.folder import RunFolder
from session.tensorplex.groups import Place
from session.tensorplex.server import Tensorplex
from session.tensorplex.sinks import sink as sinks
from session.tensorplex.sinks.csv_file import CsvFile
from session.tensorplex.sinks.sink import Point, QueuedSink, ShownRun, Sink, check_installed
from session.tensorplex.sinks.tensorboard import FIRST, TensorBoard
from tests.polling import until
from tests.session.made_run import STARTED, made_config, made_run
from tests.session.tensorplex.reading import read, scalars
from tests.session.tensorplex.rig import MakeRig
from tests.session.tensorplex.rig import make_rig as make_rig

POINTS = [Point(STARTED + step, step, Place("agent-0", "agent/a"), step / 2) for step in range(10)]


@pytest.fixture
def shown(tmp_path: Path) -> ShownRun:
    config = made_config(session_config__stop__eval_return=475.0)
    config["recorded"] = {"changed": {"learner_config.algo.gamma": 0.9}}
    return ShownRun(made_run(tmp_path / "run", config=config), config, STARTED)


def test_csv_has_one_line_for_each_point_and_one_head(shown: ShownRun) -> None:
    odd = Point(1.5, 7, Place("learner", 'metrics/a,"b"/mean'), math.nan)
    for points in (POINTS, [odd]):  # a second process goes on
        sink = CsvFile(shown)
        sink.add(points)
        assert sink.files[0].flush()
    with shown.folder.metrics.open(newline="") as file:
        head, *rows = list(csv.reader(file))
    assert head == ["time", "env_steps", "component", "tag", "value"]
    assert rows[3] == [str(STARTED + 3), "3", "agent-0", "agent/a", "1.5"]
    assert rows[10] == ["1.5", "7", "learner", odd.place.tag, "nan"]


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


def test_a_sink_without_its_package_is_refused_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = made_config(session_config__tensorplex__sinks=["csv", "wandb"])
    monkeypatch.setattr(sinks, "find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=r"sinks: wandb needs a package.*\[wandb\]"):
        check_installed(config)


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


def test_the_end_says_what_every_sink_has_lost(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"{__name__}:Broken"
    monkeypatch.setitem(sinks._KINDS, "wandb", sinks.Kind(place, ("threading",)))
    monkeypatch.setattr(sinks, "load", lambda home: Broken if home == place else load(home))
    rig = make_rig(tensorplex={"sinks": ["wandb", "csv", "tensorboard"]})
    rig.folder.metrics.mkdir()  # so that nothing can be appended to it
    context = rig.context("tensorplex")
    server = Tensorplex(context)
    agent = rig.context("agent-0")
    agent.tensorplex.add_scalar("a", 1, 5)
    rig.pump(server, lambda: server._rate.total > 0)
    server.write()
    server.close()
    records = [record for record, _ in context._channels["loggerplex"]._records]
    said = [each["detail"] for each in records if each.get("event") == "not_written"]
    assert any(detail.startswith("sink wandb: ValueError('no key')") for detail in said)
    assert "sink wandb: points lost: 1, of steps 5 to 5" in said
    assert "sink csv: records lost: 1" in said
    assert len(said) == 4  # the file that cannot be written, too
    assert server.status()["dropped_points"] == 1


class Broken(Sink):
    """A sink of a package that does not work here."""

    def __init__(self, run: ShownRun) -> None:
        raise ValueError("no key")


# In a process of its own: both packages start threads and programs, and warn.
FILL = """
import sys
from session.folder import RunFolder
from session.tensorplex.groups import Place
from session.tensorplex.sinks.sink import Point, ShownRun, make_sinks
folder = RunFolder(sys.argv[1])
[queued] = make_sinks(ShownRun(folder, folder.read_config(), 1000.0)).values()
queued.add([Point(1000.0 + i, i, Place("agent-0", "agent/a"), i / 2) for i in range(1200)])
queued.add([Point(1.0, 7, Place("replay-0", "replay.core/size"), float("nan"))])
queued.end({"status": "stopped", "goal_met": True}, [folder.path / "curve.png"])
queued.wait(100.0)
assert not queued.problem and not queued.dropped, queued.problem
"""


OPEN = """
import sys
from session.folder import RunFolder
from session.tensorplex.sinks.ml_flow import MlFlow
from session.tensorplex.sinks.sink import ShownRun
folder = RunFolder(sys.argv[1])
MlFlow(ShownRun(folder, folder.read_config(), 1000.0))
"""


def fill(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Fills a sink with points, twice as a run that is resumed with another budget does."""
    for variable in ("WANDB_MODE", "WANDB_API_KEY", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    config = made_config(session_config__tensorplex__sinks=[name])
    folder = made_run(tmp_path / "run", config=config)
    Image.new("RGB", (2, 2)).save(folder.path / "curve.png")
    for seconds in (60.0, 120.0):
        config.session_config.stop.seconds = seconds
        config.dump_file(folder.config)
        command = [sys.executable, "-c", FILL, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    return folder


# Not importorskip: each import leaves temporary folders while this process lives.
def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"needs the extra {package}")


@pytest.mark.slow
@needs("wandb")
def test_wandb_writes_an_offline_run_with_parameters_curves_result_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(tmp_path, "wandb", monkeypatch)
    assert not (folder.path / "wandb/.scratch").exists()
    first, second = sorted((folder.path / "wandb").glob("offline-run-*/*.wandb"))
    assert first.name == second.name  # that of one run
    content = first.read_bytes()
    for text in (b"env_config.env_name", b"agent/a:agent-0", b"result/goal_met", b"curve"):
        assert text in content
    assert content.count(b"agent/a:agent-0") >= 1200


@pytest.mark.slow
@needs("mlflow")
def test_mlflow_writes_one_local_run_with_parameters_curves_result_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(tmp_path, "mlflow", monkeypatch)
    book = sqlite3.connect(folder.path / "mlflow/mlflow.db")
    with contextlib.closing(book):
        runs = book.execute("select name, status from runs").fetchall()
        goal = "select value from params where key = 'env_config.env_name'"
        [parameter] = book.execute(goal).fetchall()
        curve = "select step, value from metrics where key = 'agent/a:agent-0' order by step"
        points = book.execute(curve).fetchall()
        budget = "select value from {} where key = 'session_config.stop.seconds'"
        budgets = [book.execute(budget.format(table)).fetchall() for table in ("params", "tags")]
    assert runs == [("run", "FINISHED")]
    assert parameter == ("toy:chain",)
    assert budgets == [[("60.0",)], [("120.0",)]]
    assert points == [(step, step / 2) for step in range(1200)]
    names = {path.name for path in (folder.path / "mlflow/artifacts").rglob("*")}
    assert {"result.json", "curve.png"} <= names
    subprocess.run([sys.executable, "-c", OPEN, str(folder)], check=True)
    with contextlib.closing(sqlite3.connect(folder.path / "mlflow/mlflow.db")) as book:
        assert book.execute("select status from runs").fetchall() == [("RUNNING",)]
