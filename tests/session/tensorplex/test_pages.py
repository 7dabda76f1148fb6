"""Addresses that components tell: of this part of the run, and only while it goes on."""

import json
from pathlib import Path

import pytest

from session.folder import RunFolder
from session.tensorplex.pages import Pages
from tests.session.made_run import STARTED, made_config, made_run


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    config = made_config(
        session_config__tensorplex__start_tensorboard=True,
        session_config__tensorplex__prometheus_port=9000,
    )
    return made_run(tmp_path / "run", config=config)


def tell(folder: RunFolder, kind: str, detail: str, seconds: float = 1.0) -> None:
    event = {"time": STARTED + seconds, "component": "x", "event": kind, "detail": detail}
    with folder.events.open("a") as file:
        file.write(json.dumps(event) + "\n")


def test_the_newest_address_of_each_page(folder: RunFolder) -> None:
    folder.lock()
    pages = Pages(folder)
    assert pages.read() == {}
    tell(folder, "tensorboard", "http://127.0.0.1:1/")
    tell(folder, "prometheus", "http://127.0.0.1:2/metrics")
    tell(folder, "page", "https://127.0.0.1:5/")
    tell(folder, "start", "http://127.0.0.1:3/")
    tell(folder, "tensorboard", "no address")
    assert pages.read() == {
        "tensorboard": "http://127.0.0.1:1/",
        "prometheus": "http://127.0.0.1:2/metrics",
        "page": "https://127.0.0.1:5/",
    }
    tell(folder, "tensorboard", "http://127.0.0.1:4/")
    assert pages.read()["tensorboard"] == "http://127.0.0.1:4/"
    folder.unlock()


def test_pages_of_an_earlier_part_are_not_shown(folder: RunFolder) -> None:
    folder.lock()
    tell(folder, "tensorboard", "http://127.0.0.1:1/", seconds=-1.0)
    assert Pages(folder).read() == {}
    folder.unlock()


def test_a_run_that_is_over_has_no_pages(folder: RunFolder) -> None:
    tell(folder, "tensorboard", "http://127.0.0.1:1/")
    assert Pages(folder).read() == {}
    assert Pages(folder).wait(5.0) == {}


def test_waiting_ends_when_all_are_there_or_when_time_is_over(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.lock()
    tell(folder, "tensorboard", "http://127.0.0.1:1/")
    assert set(Pages(folder).wait(0.0)) == {"tensorboard"}
    monkeypatch.setattr(
        "time.sleep", lambda seconds: tell(folder, "prometheus", "http://127.0.0.1:2/metrics")
    )
    assert set(Pages(folder).wait(60.0)) == {"tensorboard", "prometheus"}
    folder.unlock()
