"""Console blocks that belong together: their commands run as printed, in one folder, in order.

A shell gets each line. Its ``surreal-like``, ``python`` and ``pkill`` are those of the tests:
``pkill`` looks only at processes that live in the session's folder.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from session.folder import RunFolder
from session.process.heartbeat import read_beats
from tests.docs.examples import ROOT, blocks
from tests.polling import until

COMMAND_SECONDS = 100.0

_PKILL = """
import os, re, sys
import psutil
pattern, killed = re.compile(sys.argv[-1]), 0
for each in psutil.process_iter(["cmdline", "cwd"]):
    line = " ".join(each.info["cmdline"] or ())
    if each.info["cwd"] == os.getcwd() and each.pid != os.getpid() and pattern.search(line):
        if "pkill" not in line:
            each.kill()
            killed += 1
sys.exit(0 if killed == 1 else 1)
"""


class Session:
    """A folder in which the commands of a document's session are run.

    Args:
        document: where they stand.
        name: of the session.
        folder: is empty, or holds what the document takes for granted.
    """

    def __init__(self, document: Path, name: str, folder: Path) -> None:
        marked = [block for block in blocks(document) if block.session == name]
        self.lines = [
            line.removeprefix("$ ")
            for block in marked
            for line in block.text.splitlines()
            if line.startswith("$ ")
        ]
        self.folder = folder
        self._bin = folder / "bin"
        self._bin.mkdir()
        self._write("surreal-like", [sys.executable, "-P", "-m", "main.cli"])
        self._write("python", [sys.executable])
        self._write("pkill", [sys.executable, "-c", _PKILL])

    def _write(self, name: str, words: list[str]) -> None:
        path = self._bin / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        path.chmod(0o755)

    def run(self, line: str, exit_code: int = 0) -> str:
        """Run one line as a shell would; return what it printed.

        Fails unless it ends with this exit code.
        """
        path = f"{self._bin}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        shown = f"$ {line}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        assert done.returncode == exit_code, f"ended with {done.returncode}:\n{shown}"
        assert "Traceback" not in done.stderr, shown
        return done.stdout

    def newest(self) -> RunFolder:
        """Return the newest run below the session's folder."""
        configs = self.folder.glob("runs/*/config.yaml")
        return RunFolder(max(configs, key=lambda path: path.stat().st_mtime).parent)

    def wait_until_it_learns(self) -> RunFolder:
        """Wait until the newest run has made updates; return its folder."""
        until(lambda: self.newest().last_progress().get("iterations"))
        return self.newest()

    def wait_until_replaced(self, name: str, pid: int) -> None:
        """Wait until a component runs again, as another process."""

        def is_back() -> bool:
            beat = read_beats(self.newest().alive).get(name)
            return beat is not None and beat.pid != pid and beat.state == "running"

        until(is_back)

    def pid(self, name: str) -> int:
        """Return the process of a component of the newest run."""
        return read_beats(self.newest().alive)[name].pid

    def result(self) -> dict[str, Any]:
        """Return the result of the newest run."""
        found: dict[str, Any] = json.loads(self.newest().result.read_text())
        return found

    def left(self) -> list[str]:
        """Return the command lines of the processes that live in the folder."""
        found = []
        for each in psutil.process_iter(["cmdline", "cwd"]):
            here = each.info["cwd"] == str(self.folder) and each.pid != os.getpid()
            # One that is just ending has let go of its words before it lets go of its folder.
            if here and each.info["cmdline"]:
                found.append(" ".join(each.info["cmdline"]))
        return found
