"""The page of a gateway in Chromium: sixteen CartPoles that learn in it.

The picture in docs/images is what this test has seen last; it is made with

    SURREAL_LIKE_PICTURES=docs/images pytest tests/addons/gateway/runs/test_gateway_page.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from session.launchers.launcher import free_ports
from tests.browser import Page, browser, keep
from tests.runs.command import ROOT, Train, clean

CONFIG = str(ROOT / "configs" / "cartpole_browser.yaml")
# A page that draws is slow: only the picture waits until all of it is learned. A policy that has
# learned nothing has about 20.
GOAL, ENOUGH = (475.0, 300.0) if "SURREAL_LIKE_PICTURES" in os.environ else (45.0, 40.0)
# The budget of environment steps decides: one of seconds would measure the machine.
ENV_STEPS = 400_000
PATIENCE_SECONDS = 1700.0
OVER = "document.getElementById('notice').textContent == 'The run is over.'"


def shown(page: Page, name: str) -> float:
    """A number of the page."""
    text = page.run(f"document.getElementById('{name}').textContent")
    return float("".join(re.findall(r"[\d.]", text)) or 0)


def choose(page: Page, mode: str) -> None:
    page.run(f"document.querySelector('input[value={mode}]').click()")


def wait_for(page: Page, condition: str) -> None:
    """Waits until a condition is true, and fails if the run ends before."""
    counted = f"Number(document.getElementById('counted').textContent) == 100 && {condition}"
    page.wait(f"{OVER} || ({counted})", PATIENCE_SECONDS)
    assert not page.run(OVER), f"not learned in {ENV_STEPS} steps: {page.text()}"


@pytest.mark.slow
@pytest.mark.chromium
@pytest.mark.timeout(1800)
def test_cartpole_is_learned_in_a_page(run_folder: Path, tmp_path: Path) -> None:
    (port,) = free_ports(["gateway"], "127.0.0.1").values()
    stop = f"session_config.stop={{env_steps: {ENV_STEPS}, seconds: null}}"
    words = ("--quiet", f"session_config.gateway.port={port}", stop)
    with Train(run_folder, CONFIG, *words) as train:
        (event,) = train.until(lambda: train.events_of("page"))
        address = event["detail"]
        assert address == f"http://127.0.0.1:{port}/"
        with browser(tmp_path, width=1100, height=1080) as page:
            page.open(address)
            page.wait("Number(document.getElementById('episodes')?.textContent) > 0")
            solve(page)
            keep(page, "gateway_page.png")
            assert shown(page, "latency") > 0
            assert shown(page, "rate") > 0
            assert shown(page, "version") > 0
            assert page.outside() == []
            assert page.complaints == page.console == []
            names = {each["detail"].split(" ")[0] for each in train.events_of("client_joined")}
            assert names == {f"page-{number}" for number in range(1, 17)}
            train.signal(2)
            page.wait(OVER)
        assert train.wait() == 130
    assert clean(train.result)


def solve(page: Page) -> None:
    """Learns and watches in turn until what is watched has reached the goal."""
    best = 0.0
    while best < GOAL:
        choose(page, "train")
        wait_for(page, f"Number(document.getElementById('mean').textContent) >= {ENOUGH}")
        choose(page, "act")
        wait_for(page, "true")
        best = shown(page, "mean")
