"""Clients of any script: to a run by its folder or by a token, and to a folder without a run."""

import logging
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.errors import AdmissionError, UsageError
from session.folder import RunFolder
from session.loggerplex.log_server import Loggerplex
from session.process.component import Component, Topology
from session.process.context import Launch
from session.process.entry import make_frame
from session.process.script import ServiceThread
from session.tensorplex.metrics_server import Tensorplex
from session.wire.security import Security
from surreal_like import LoggerplexClient, Telemetry, TensorplexClient
from surreal_like.addons.join.admission_client import default_folder
from tests.addons.join.test_admission_server import ALL, Host
from tests.polling import until
from tests.session.tensorplex.reading import curves, read, scalars
from tests.session.tensorplex.rig import MakeRig
from tests.session.tensorplex.rig import make_rig as make_rig


def texts(path: Path) -> list[str]:
    return [line.partition(": ")[2] for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_a_plain_script_has_curves_and_logs(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    for part in range(2):  # the folder may be used again
        with (
            Telemetry(folder),
            TensorplexClient(folder, "train/0") as metrics,
            LoggerplexClient(folder, "train/0") as log,
        ):
            for step in range(1200):  # more than one message holds
                metrics.add_scalar("loss", 1 / (1 + step))
            log.info("part %d", part)
            logging.Logger("other").addHandler(log.handler)
        assert (metrics.dropped, log.dropped) == (0, 0)
    assert curves(folder / "tensorboard")["client-train-0"] == ["train/loss"]
    steps = [step for _, step, _ in scalars(folder / "tensorboard", "train/loss:client-train-0")]
    assert steps == 2 * list(range(1200))
    assert texts(folder / "logs" / "client-train-0.log") == ["part 0", "part 1"]
    assert not RunFolder(folder).in_use
    assert not RunFolder(folder).sockets.exists()


PHOTOGRAPHER = """
import sys
import numpy as np
from surreal_like import TensorplexClient
for name in ("left", "right"):
    client = TensorplexClient(sys.argv[1], f"camera/{name}")
    for step in range(7):
        client.add_image("p", np.full((700, 600), 9 * step, np.uint8), step)
"""


@pytest.mark.slow
def test_the_end_of_a_script_sends_pictures_that_are_under_way(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    with Telemetry(folder):
        words = [sys.executable, "-c", PHOTOGRAPHER, str(folder)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    found = read(folder / "tensorboard")
    steps = {tag: [each.step for each in found.Images(tag)] for tag in found.Tags()["images"]}
    assert steps == {f"{side}/p:client-camera-{side}": list(range(7)) for side in ("left", "right")}


def test_a_server_that_reads_too_slowly_is_one_line(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("surreal_like.addons.scripts.telemetry_clients._LINGER_SECONDS", 0.1)
    rig = make_rig()
    rig.write_files()
    server = rig.context("tensorplex").wire.pull("tensorplex.records", high_water_mark=1)
    with TensorplexClient(rig.folder.path, "camera/left") as client:
        for step in range(10):
            client.add_image("p", np.zeros((2000, 2000), np.uint8), step)
        until(lambda: server.look())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("client-camera-left: the tensorplex of ")
    assert line.endswith("reads too slowly; the last records may be lost")


def test_a_folder_has_one_telemetry_and_no_run(tmp_path: Path) -> None:
    with Telemetry(tmp_path / "mine"), pytest.raises(UsageError, match="in use: open clients"):
        Telemetry(tmp_path / "mine")
    run = tmp_path / "run"
    run.mkdir()
    text = (tmp_path / "mine" / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("algorithm: none", "algorithm: dqn"))
    with pytest.raises(UsageError, match="holds a run: open clients of it, or choose another"):
        Telemetry(run)
    assert [path.name for path in run.iterdir()] == ["config.yaml"]


def test_a_script_reports_to_a_run_beside_its_components(make_rig: MakeRig) -> None:
    rig = make_rig(loggerplex={"level": "debug"})
    rig.write_files()
    tensorplex = Tensorplex(rig.context("tensorplex"))
    loggerplex = Loggerplex(rig.context("loggerplex"))
    metrics = [TensorplexClient(rig.folder.path, f"simulator/{name}") for name in ("0", "left")]
    log = LoggerplexClient(str(rig.folder), "simulator/0")
    try:
        for each in metrics:
            each.add_scalar("fps", 60, 7)
        rig.context("agent-0").tensorplex.add_scalar("return", 1, 1)
        log.debug("as the run says")
        log.event("scene", "loaded", size=3)
        for server, count in ((tensorplex, 3), (loggerplex, 2)):
            rig.pump(server, lambda server=server, n=count: server._rate.total >= n)  # type: ignore[misc]
    finally:
        for client in (*metrics, log):
            client.close()
    tensorplex.close()
    loggerplex.close()
    assert curves(rig.folder.tensorboard) == {
        "agent-0": ["agent/return"],
        "client-simulator-0": ["simulator/fps"],
        "client-simulator-left": ["left/fps"],
    }
    lines = ["as the run says", "scene: loaded size=3"]
    assert texts(rig.folder.logs / "client-simulator-0.log") == lines
    assert tensorplex.rejected == loggerplex.rejected == 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("simulator", "write <group>/<id>"),
        ("Simulator/0", "in lower case letters"),
        ("simulator/../x", "write <group>/<id>"),
        ("x/" + "y" * 55, "at most 56 characters"),
        (3, "client name '3'"),
        ("agent/7", "the group agent belongs to components of the run"),
        ("learner/x", "the group learner belongs to components"),
    ],
)
@pytest.mark.parametrize("client", [TensorplexClient, LoggerplexClient])
def test_names_that_cannot_be_are_refused(
    tmp_path: Path, client: type[Any], name: Any, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        client(tmp_path, name)


def test_where_no_run_can_be_reached_an_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no addresses\.json; for a run of another machine"):
        TensorplexClient(tmp_path, "simulator/0")
    with pytest.raises(UsageError, match="is not the folder of a run"):
        LoggerplexClient("192.0.2.7:4139", "simulator/0")
    with Telemetry(tmp_path / "mine"):
        pass
    book = tmp_path / "mine" / "addresses.json"
    book.write_text(book.read_text().replace("ipc:///", "inproc://"))
    with pytest.raises(UsageError, match=r"no tensorplex\.records that another process could"):
        TensorplexClient(tmp_path / "mine", "simulator/0")


def test_without_a_server_nothing_waits_and_one_line_reports_it(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("surreal_like.addons.scripts.telemetry_clients._SILENT_SECONDS", math.inf)
    rig = make_rig()
    rig.write_files()
    client = TensorplexClient(rig.folder.path, "simulator/0")
    for step in range(10_050):
        client.add_scalar("fps", 60, step)
    assert client.dropped == 50
    monkeypatch.setattr("surreal_like.addons.scripts.telemetry_clients._SILENT_SECONDS", 0.0)
    warned: list[str] = []

    def has_warned() -> bool:
        warned.extend(capsys.readouterr().err.splitlines())
        return bool(warned)

    until(has_warned)
    context, rounds = client._connection.context, []
    flush = context.flush

    def counted() -> None:
        rounds.append(1)
        flush()

    monkeypatch.setattr(context, "flush", counted)
    until(lambda: len(rounds) > 3)
    client.close(0.0)
    client.add_scalar("fps", 60, 150)
    client.close()
    warned += capsys.readouterr().err.splitlines()
    assert client.dropped == 10_051
    first, last = warned
    assert first.startswith("client-simulator-0: the tensorplex of ")
    assert first.endswith("does not answer; 10000 records wait, 50 were dropped")
    assert last == "client-simulator-0: 10050 records were dropped"


class Hosted(Host):
    """A run with a door and a Tensorplex that can be reached from other machines."""

    def __init__(self, path: Path) -> None:
        endpoints = ("tensorplex.records", "tensorplex.requests")
        super().__init__(path, (*ALL, *endpoints))
        component = Component("tensorplex", "tensorplex", "main.tensorplex", binds=endpoints)
        launch = Launch(component, self.config, Topology([component]), self.book, self.folder)
        self.frame = make_frame(launch, Tensorplex)
        self._server = ServiceThread(self.frame)

    def close(self) -> None:
        self.frame.context.stopping = True
        self._server.join()
        super().close()


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    made = Hosted(tmp_path)
    yield made
    made.close()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.mark.usefixtures("temporary")
def test_from_another_machine_a_token_lets_a_script_in(hosted: Hosted, tmp_path: Path) -> None:
    # A script needs no copy of the run's algorithm, as agents do.
    hosted.config["recorded"] = {"algorithm_sha256": "0" * 64}
    token = hosted.token()
    with TensorplexClient(hosted.address, "simulator/left", token=token) as client:
        client.add_scalar("fps", 60)
        # Another name than its own, as a wrong program would send it.
        client.client_id = "client/simulator/right"
        client.add_scalar("fps", 60)
        client.client_id = "agent/0"
        client.add_scalar("return", 500)
        until(lambda: curves(hosted.folder.tensorboard) != {})
    assert hosted.events == ["joined: a machine with client-simulator-left"]
    public = (default_folder(token) / "keys" / "client.pub").read_bytes().strip()
    grant = Security.load(hosted.folder.keys).grant(public)
    assert grant is not None
    assert grant.names == ("client-simulator-left",)
    hosted.frame.context.stopping = True
    until(lambda: hosted.frame.finished)
    assert curves(hosted.folder.tensorboard) == {"client-simulator-left": ["left/fps"]}
    with pytest.raises(AdmissionError, match="another machine reports as 'client-simulator-left'"):
        TensorplexClient(hosted.address, "simulator/left", token=hosted.token())


@pytest.mark.usefixtures("temporary")
def test_a_key_that_was_taken_away_is_one_line(
    hosted: Hosted, capsys: pytest.CaptureFixture[str]
) -> None:
    token = hosted.token()
    TensorplexClient(hosted.address, "simulator/0", token=token).close()
    for path in (hosted.folder.keys / "allowed").iterdir():
        path.unlink()
    with TensorplexClient(default_folder(token), "simulator/0") as client:
        client.add_scalar("fps", 60)
        until(lambda: client.dropped)
    assert "this run does not know the key of this side" in capsys.readouterr().err


def test_a_token_hands_out_names_of_scripts_only(hosted: Hosted, tmp_path: Path) -> None:
    from surreal_like.addons.join.admission_client import Invitation, request_admission

    invitation = Invitation(hosted.address, hosted.token(), 1, folder=tmp_path / "guest")
    request_admission(replace(invitation, clients=("simulator/0",)))
    admission = request_admission(replace(invitation, agents=2, clients=("simulator/1",)))
    assert admission.names == ("agent-1000", "agent-1001")
    key = (admission.folder.keys / "client.pub").read_bytes().strip()
    grant = Security.load(hosted.folder.keys).grant(key)
    assert grant is not None
    scripts = ("client-simulator-0", "client-simulator-1")
    assert grant.names == ("agent-1000", "agent-1001", *scripts)
