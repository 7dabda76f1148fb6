"""Runs at URLs on the command line, and mirrors that are refused before anything starts."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session.addons.hooks import is_url
from session.addons.mirror.hooks import refuse_pods
from session.addons.mirror.storage import Storage
from session.errors import UsageError
from surreal_like import load_policy
from surreal_like.experiment.read import read_experiment
from tests.addons.mirror.mirrored import contents, make_copier, make_run
from tests.main.conftest import Command, train_small

SERIAL = ("--on", "serial", "--quiet", "session_config.evaluator.interval_seconds=0.1")


@pytest.fixture(autouse=True)
def at_exit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the test as the process of a command ends: temporary copies are gone."""
    closing: list[Callable[[], object]] = []
    monkeypatch.setattr("session.wire.contexts.close_at_exit", closing.append)
    yield
    for close in closing:
        close()
    assert not list(Path(tempfile.gettempdir()).glob("sl-mirror-*"))


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket"


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder: a run that has ended is `one` in it, a copy of its mirror is in `kept`."""
    top = tmp_path_factory.mktemp("mirrored")
    changes = {
        "session_config.mirror": f"file://{top}/bucket",
        "session_config.evaluator.interval_seconds": 0.1,
    }
    train_small(top, "one", **changes)
    (top / "bucket").rename(top / "kept")
    return top


@pytest.fixture
def mirror(mirrored: Path, command: Command, quick: None) -> Iterator[str]:
    """Yield the URL of a run whose folder is gone."""
    bucket = mirrored / "bucket"  # its config names it
    shutil.copytree(mirrored / "kept", bucket)
    shutil.copytree(mirrored / "one", "lost")
    yield f"file://{bucket}/one"
    shutil.rmtree(bucket)


def test_a_run_is_resumed_from_its_mirror(command: Command, quick: None, mirror: str) -> None:
    said = command("train", "--resume", mirror, *SERIAL, "session_config.stop.env_steps=1500")
    assert said.code == 0, said.err
    result = json.loads(Path("runs/one/result.json").read_text())
    before = json.loads(Path("lost/result.json").read_text())
    assert result["env_steps"] >= 1500 > before["env_steps"] >= 400
    assert result["iterations"] > before["iterations"]
    # The mirror goes on.
    manifest = Storage(mirror).read_manifest()
    assert manifest is not None
    assert manifest.part == 2
    # The folder exists now: what is in it stays.
    there = contents(Path("runs/one"))
    said = command("train", "--resume", mirror, *SERIAL)
    assert said.code == 2
    assert "folder runs/one is not empty" in said.err
    assert contents(Path("runs/one")) == there


def test_runs_below_a_url_are_listed(command: Command, mirror: str) -> None:
    place = mirror.removesuffix("/one")
    for url in (place, mirror):
        (row,) = json.loads(command("list", url, "--json").out)
        assert (row["run"], row["folder"], row["state"]) == ("one", mirror, "done")
    assert "one" in command("list", "runs", place).out
    assert "no runs below" in command("list", f"{place}/none").out


def test_a_run_that_was_cut_off_shows_the_age_of_its_copy(command: Command, mirror: str) -> None:
    place = mirror.removesuffix("/one")
    make_copier(make_run(Path("cut").absolute()), f"{place}/cut").copy(1.0)
    rows = {row["run"]: row["state"] for row in json.loads(command("list", place, "--json").out)}
    assert rows["cut"].startswith("copied ")
    assert rows["cut"].endswith(" ago")


def test_a_run_at_a_url_is_looked_at_and_takes_no_commands(command: Command, mirror: str) -> None:
    place = mirror.removesuffix("/one")
    make_copier(make_run(Path("cut").absolute()), f"{place}/cut").copy(1.0)
    for url, state in ((mirror, "done"), (f"{place}/cut", "copied before its end")):
        for look in ("status", "doctor"):
            said = command(look, url)
            assert (said.code, said.err) == (0, "")
            head, line, *_ = said.out.splitlines()
            assert head.endswith(url)
            assert line.startswith(state)
            assert "/sl-mirror-" not in said.out
        for words in (("stop", url), ("scale", url, "agent=2"), ("restart", url, "agent-0")):
            said = command(*words)
            assert said.code == 2
            assert url in said.err
            assert len(said.err.splitlines()) == 1
        assert command("logs", url).code == 0


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAEXAMPLE:hunter2@bucket/runs",
        "sftp://me:hunter2@host/runs",
        "https://host/runs?sig=hunter2",
        "s3://bucket/runs?a=1&secret_token=hunter2",
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_shown(command: Command, url: str) -> None:
    mirror = f"session_config.mirror={url}"
    for words in (
        ("train", "small.yaml", "--folder", "run", mirror, *SERIAL),
        ("plan", "small.yaml", mirror),
        ("train", "--resume", url),
        ("evaluate", url),
        ("status", url),
        ("list", url),
        ("train", "small.yaml", f"session_config.miror={url}"),
    ):
        said = command(*words)
        assert said.code == 2
        assert len(said.err.splitlines()) == 1
        assert "hunter2" not in said.err + said.out
    assert not Path("run").exists()


def test_policies_at_a_url(command: Command, mirror: str) -> None:
    said = command("evaluate", mirror, "--checkpoint", "latest", "--episodes", "4", "--json")
    assert json.loads(said.out)["episodes"] == 4
    policy = load_policy(mirror, checkpoint="latest")
    action, _ = policy([0.0] * policy.config.env_config.obs_spec.dim[0])
    assert action in range(policy.config.env_config.action_spec.dim[0])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("evaluate", "{place}/none"), "there is no run at"),
        (("train", "--resume", "{place}/none", "--on", "serial"), "there is no run at"),
        (("train", "{place}/none", "--on", "serial"), "which is resumed by --resume"),
        (("list", "s4://bucket"), "no file system 's4'"),
        (("evaluate", "s3:///"), "expected a URL"),
    ],
)
def test_a_wrong_url_gets_one_line(
    argv: tuple[str, ...], words: str, command: Command, place: str
) -> None:
    said = command(*(word.format(place=place) for word in argv))
    assert said.code == 2
    assert words in said.err
    assert len(said.err.splitlines()) == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s4://bucket/x", "session_config.mirror is s4://bucket/x: there is no file system 's4'"),
        ("backup", "session_config.mirror is backup, expected a URL"),
    ],
)
def test_a_mirror_that_cannot_be_is_refused_before_the_start(
    url: str, words: str, command: Command, quick: None
) -> None:
    said = command("train", "small.yaml", *SERIAL, f"session_config.mirror={url}")
    assert said.code == 2
    assert words in said.err
    assert not list(Path().glob("runs/*"))


def test_a_mirror_whose_package_is_missing_is_refused_with_the_extra(
    command: Command, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("fsspec.registry")

    def missing(scheme: str) -> None:
        raise ImportError(f"install a package for {scheme}")

    monkeypatch.setattr(sys.modules["fsspec.registry"], "get_filesystem_class", missing)
    said = command("train", "small.yaml", *SERIAL, "session_config.mirror=s3://bucket/x")
    assert said.code == 2
    assert "[s3]" in said.err
    assert not list(Path().glob("runs/*"))


def test_a_mirror_is_refused_in_a_cluster() -> None:
    words = ["session_config.mirror=s3://bucket/x"]
    config = read_experiment(None, words, algorithm="dqn", env_name="toy:chain")
    with pytest.raises(UsageError, match="snapshots of the volumes"):
        refuse_pods(config.session_config, ("tls.crt", "tls.key"))


def test_a_path_is_no_url() -> None:
    assert not any(map(is_url, ("runs/one", "C:/runs", "a:b//c", "latest", "/s3://x")))
    assert all(map(is_url, ("s3://bucket", "file:///tmp", "abfs+x.y://a")))
