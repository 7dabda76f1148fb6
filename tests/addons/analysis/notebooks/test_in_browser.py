"""The dashboard in JupyterLab, in a browser: table and curves live, buttons do what they say.

The picture in docs/images is what this test has seen last; it is made with

    SURREAL_LIKE_PICTURES=docs/images pytest tests/addons/analysis/notebooks/test_in_browser.py
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from session.folder import RunFolder
from tests.addons.analysis.notebooks.lab import Notebook, copy_notebooks, lab
from tests.browser import WAIT_SECONDS, browser, keep
from tests.polling import until

# Up to the cell that shows the dashboard.
CELLS = 6
pytestmark = [pytest.mark.slow, pytest.mark.chromium, pytest.mark.timeout(1800)]

wait = partial(until, seconds=WAIT_SECONDS)

IMAGE = "[...document.querySelectorAll('.jp-OutputArea-output img')][0]"


def runs(notebook: Notebook, name: str) -> bool:
    return notebook.rows().get(name, {}).get("state") == "running"


def test_dashboard_lives_in_jupyterlab(tmp_path: Path) -> None:
    copy_notebooks(tmp_path)
    with lab(tmp_path) as address, browser(tmp_path, width=1250, height=1130) as page:
        notebook = Notebook(page, address, "notebooks/cluster_dashboard.ipynb")
        notebook.run_cells(CELLS)
        wait(lambda: runs(notebook, "agent-1"))
        page.wait("document.body.innerText.includes('training return')")
        source = page.run(f"{IMAGE}.src")
        page.wait(f"{IMAGE}.naturalWidth > 500 && {IMAGE}.src != '{source}'")
        page.wait("document.body.innerText.includes('http://127.0.0.1:')")

        notebook.press("Add agent")
        wait(lambda: runs(notebook, "agent-2"))
        notebook.choose("agent-0")
        page.wait("document.body.innerText.includes('agent-0: acting')")
        notebook.press("Kill component")
        page.wait("document.body.innerText.includes('killed agent-0, process')")
        wait(lambda: runs(notebook, "agent-0") and notebook.rows()["agent-0"]["restarts"] == "1")
        notebook.to_top(".jp-OutputArea-output .jupyter-widgets")
        keep(page, "dashboard.png")
        notebook.press("errors")
        page.wait("document.body.innerText.includes('no errors of agent-0')")

        notebook.press("Stop everything")
        page.wait("document.body.innerText.includes(' · interrupted · after ')")
        page.wait("document.body.innerText.includes(' · stopped from the dashboard · ')")
        page.wait("[...document.querySelectorAll('button')].some(b => b.disabled)")
        assert page.outside() == []
        assert page.complaints == []
    [run] = (tmp_path / "runs").iterdir()
    wait(lambda: not RunFolder(run).in_use)
