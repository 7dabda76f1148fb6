"""JupyterLab with copies of the notebooks, in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browser import WAIT_SECONDS, Page
from tests.session.wire.rig import free_port

ROOT = Path(__file__).resolve().parents[4]
# Lab itself would ask for news; nothing is to leave this machine.
SETTINGS = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
FLAGS = (
    *("--no-browser", "--allow-root", "--expose-app-in-browser"),
    *("--ServerApp.port_retries=0", "--IdentityProvider.token="),
    "--LabApp.extension_manager=readonly",
)


def copy_notebooks(folder: Path) -> Path:
    """Copy notebooks and configs, so that runs go below `folder`; return the notebooks."""
    shutil.copytree(ROOT / "configs", folder / "configs")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    return folder / "notebooks"


def environment(folder: Path) -> dict[str, str]:
    """Return variables that keep what Jupyter writes for itself inside `folder`."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    return os.environ | {name: str(folder / ".jupyter" / name.lower()) for name in names}


@contextmanager
def lab(folder: Path) -> Iterator[str]:
    """Start JupyterLab over a folder; give its address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    settings = folder / ".jupyter" / "jupyter_config_dir" / "labconfig"
    settings.mkdir(parents=True)
    (settings / "page_config.json").write_text(json.dumps(SETTINGS))
    command = [sys.executable, "-m", "jupyterlab", *FLAGS, "--ip=127.0.0.1", f"--port={port}"]
    with (folder / "lab.out").open("w") as out:
        process = subprocess.Popen(
            [*command, f"--ServerApp.root_dir={folder}"],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        await_answer(f"{address}/api", process, folder / "lab.out")
        yield address
    finally:
        process.terminate()
        process.wait(20)


def await_answer(address: str, process: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"JupyterLab does not answer: {said.read_text()[-3000:]}")


class Notebook:
    """An opened notebook in the browser."""

    def __init__(self, page: Page, address: str, path: str) -> None:
        self.page = page
        page.open(f"{address}/lab/tree/{path}?reset")
        page.wait("window.jupyterapp && jupyterapp.restored.then(() => true)")
        # The kernel is there once it has answered; that it is idle may be said before Lab listens.
        kernel = "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel"
        page.wait(f"{kernel}?.info.then(() => true)")
        self.command("application:toggle-left-area")

    def run_cells(self, number: int) -> None:
        """Run so many cells from the top, one after the other."""
        for _ in range(number):
            self.command("notebook:run-cell-and-select-next")

    def command(self, name: str) -> None:
        self.page.run(f"jupyterapp.commands.execute('{name}').then(() => true)")

    def press(self, label: str) -> None:
        """Click the button that bears a label, once it can be clicked."""
        self.page.wait(
            "(b => b && !b.disabled && (b.click(), true))([...document.querySelectorAll('button')]"
            f".find(b => b.innerText.trim() == '{label}'))"
        )

    def choose(self, option: str) -> None:
        """Choose an entry of the first list that has it."""
        self.page.wait(
            "(o => o && (o.selected = true, o.parentElement.dispatchEvent("
            "new Event('change', {bubbles: true})), true))"
            f"([...document.querySelectorAll('option')].find(o => o.innerText == '{option}'))"
        )

    def rows(self) -> dict[str, dict[str, str]]:
        """Return component -> column -> text, as the table of the dashboard shows them now."""
        table: list[list[str]] = self.page.run(
            "[...document.querySelectorAll('.jp-OutputArea-output tr')]"
            ".map(r => [...r.cells].map(c => c.innerText.trim()))"
        )
        head, *rows = table or [[]]
        return {row[0].removeprefix("● "): dict(zip(head, row, strict=True)) for row in rows}

    def to_top(self, selector: str) -> None:
        """Scroll what a selector finds to the top of the window."""
        self.page.run(f"document.querySelector('{selector}').scrollIntoView()")
