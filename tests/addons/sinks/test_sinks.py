"""Sinks of the add-on: what each writes, and what all sinks have lost at the end."""

import contextlib
import csv
import math
import sqlite3
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image

from session.addons import SinkKind, list_sinks, load
from session.addons.sinks.csv_file import CsvFile
from session.errors import MissingExtra
from session.folder import RunFolder
from session.tensorplex.groups import Place
from session.tensorplex.metrics_server import Tensorplex
from session.tensorplex.sinks import sink as sinks
from session.tensorplex.sinks.sink import Point, ShownRun, Sink, check_installed
from tests.session.made_run import STARTED, made_config, made_run
from tests.session.tensorplex.rig import MakeRig
from tests.session.tensorplex.rig import make_rig as make_rig

POINTS = [Point(STARTED + step, step, Place("agent-0", "agent/a"), step / 2) for step in range(10)]


def test_csv_has_one_line_for_each_point_and_one_head(tmp_path: Path) -> None:
    config = made_config()
    shown = ShownRun(made_run(tmp_path / "run", config=config), config, STARTED)
    odd = Point(1.5, 7, Place("learner", 'metrics/a,"b"/mean'), math.nan)
    for points in (POINTS, [odd]):  # a second process goes on
        sink = CsvFile(shown)
        sink.add(points)
        assert sink.files[0].flush()
    with (shown.folder.path / "metrics.csv").open(newline="") as file:
        head, *rows = list(csv.reader(file))
    assert head == ["time", "env_steps", "component", "tag", "value"]
    assert rows[3] == [str(STARTED + 3), "3", "agent-0", "agent/a", "1.5"]
    assert rows[10] == ["1.5", "7", "learner", odd.place.tag, "nan"]


def test_a_sink_without_its_package_is_refused_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = made_config(session_config__tensorplex__sinks=["csv", "wandb"])
    monkeypatch.setattr(sinks, "find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=r"sinks: wandb needs a package.*\[wandb\]"):
        check_installed(config)


def test_the_end_says_what_every_sink_has_lost(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"{__name__}:Broken"
    kinds = {**list_sinks(), "wandb": SinkKind(place, ("threading",))}
    monkeypatch.setattr(sinks, "list_sinks", lambda: kinds)
    monkeypatch.setattr(sinks, "load", lambda home: Broken if home == place else load(home))
    rig = make_rig(tensorplex={"sinks": ["wandb", "csv", "tensorboard"]})
    (rig.folder.path / "metrics.csv").mkdir()  # so that nothing can be appended to it
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
from session.addons.sinks.ml_flow import MlFlow
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
def needs_extra(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"needs the extra {package}")


@pytest.mark.slow
@needs_extra("wandb")
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
@needs_extra("mlflow")
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
