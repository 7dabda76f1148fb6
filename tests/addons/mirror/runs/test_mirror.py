"""A run whose machine is lost goes on from its mirror on a real S3 server."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from session.addons.mirror.fetch import list_runs
from session.addons.mirror.storage import Storage
from session.folder import RunFolder
from tests.addons.mirror.s3_server import CREDENTIALS, FaultyProxy, S3Server
from tests.runs.command import CARTPOLE, Train, gone

pytest.importorskip("s3fs", reason="needs the extra s3")
pytest.importorskip("moto", reason="needs the extra dev")
PLACE = "s3://bucket/runs"
WORDS = (
    "session_config.checkpoint.period=200",
    "session_config.mirror_seconds=1",
    "session_config.stop={iterations: 1000000}",
)


def numbers(names: list[str]) -> list[int]:
    """The iterations of checkpoints among the files of a run."""
    parts = [name.split("/") for name in names if name.startswith("checkpoints/learner/")]
    return sorted({int(each[2]) for each in parts if each[2].isdigit()})


def mirrored(url: str) -> list[int]:
    """The checkpoints in the newest generation of a mirror."""
    manifest = Storage(url).read_manifest()
    return [] if manifest is None else numbers(list(manifest.files))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_lost_run_goes_on_from_its_mirror(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{PLACE}/{run_folder.name}"
    with S3Server(tmp_path / "moto.log") as server, FaultyProxy(server.port) as proxy:
        environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": proxy.url}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with Train(run_folder, CARTPOLE, *WORDS, f"session_config.mirror={PLACE}") as train:
            train.until(lambda: len(mirrored(url)) == 2)
            # The server dies with all that it has; the run neither waits nor fails.
            server.kill()
            train.until(lambda: train.events_of("mirror_away"))
            train.learn(200)
            server.start()
            train.until(lambda: train.events_of("mirror_back"))
            assert len(train.events_of("mirror_away")) == 1
            reached = train.line["iterations"]
            newest = train.until(lambda: max([*mirrored(url), 0]) > reached and mirrored(url)[-1])
            family = train.family()
            os.killpg(train.pid, signal.SIGKILL)
            gone(family, seconds=20.0)
            made = train.line["iterations"]
        shutil.rmtree(run_folder)
        (listed,) = [place for place, _, _ in list_runs(PLACE)]
        assert listed == url
        mirror_had = mirrored(url)
        assert mirror_had[-1] >= newest
        stop = f"session_config.stop={{iterations: {made + 400}}}"
        with Train(run_folder, url, "--resume", stop) as train:
            assert train.wait(120) == 0, train.words
        assert train.result["iterations"] >= made + 400
        # It went on from the newest checkpoint of the mirror, and repeats no more than since that.
        starts = [each["grew_from"] for each in states(run_folder)]
        assert min(filter(None, starts)) >= mirror_had[-1]
        assert train.result["repeated_iterations"] <= made - mirror_had[-1] + 200
        # The mirror goes on, too: its last generation has the end of the run.
        statuses = [(run.read_result() or {})["status"] for _, _, run in list_runs(PLACE)]
        assert statuses == ["stopped"]


def states(path: Path) -> list[dict[str, int]]:
    """The states of all checkpoints of a run."""
    files = (RunFolder(path).checkpoints / "learner").glob("[0-9]*/state.json")
    return [json.loads(file.read_text()) for file in files]
