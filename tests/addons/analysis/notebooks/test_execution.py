"""Notebooks run from top to bottom without anybody in front of them, and end what they began.

With the variable SURREAL_LIKE_KEEP_OUTPUTS the quickstart keeps the outputs of this execution.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest

from session.folder import RunFolder
from session.launchers.launcher import free_ports
from tests.addons.analysis.notebooks.lab import ROOT, copy_notebooks, environment

LIMIT_SECONDS = 240
pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_SECONDS + 30)]


def execute(folder: Path, name: str) -> Any:
    """Execute a copy of a notebook as its users would; return it with its outputs."""
    notebooks = copy_notebooks(folder)
    uncomment(notebooks / "cluster_dashboard.ipynb")
    move(notebooks / "quickstart.ipynb")
    program = Path(sys.executable).with_name("jupyter-execute")
    command = [str(program), f"notebooks/{name}", "--inplace"]
    # Kernels that are told to end leave temporary folders of their own; our sockets must be gone.
    with tempfile.TemporaryDirectory() as temp:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment(folder) | {"TMPDIR": temp},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert list(Path(temp).glob("sl-*")) == []
    return nbformat.read(notebooks / name, as_version=4)  # type: ignore[no-untyped-call]


def uncomment(path: Path) -> None:
    """Lets a notebook end what it began, which users do by hand."""
    text = path.read_text()
    assert '"# board.stop()' in text
    path.write_text(text.replace('"# board.', '"board.'))


def move(path: Path) -> None:
    """Lets a notebook use a port of its own."""
    (port,) = free_ports(["gateway"], "127.0.0.1").values()
    text = path.read_text()
    assert text.count("7100") == 2
    path.write_text(text.replace("7100", str(port)))


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def texts(notebook: Any) -> str:
    found = [output.get("text", "") for output in outputs(notebook)]
    found += [output.get("data", {}).get("text/plain", "") for output in outputs(notebook)]
    return "\n".join(found)


def images(notebook: Any) -> set[str]:
    return {
        kind
        for output in outputs(notebook)
        for kind in output.get("data", {})
        if kind.startswith("image/")
    }


def lasting(cell: Any) -> list[Any]:
    """Return the outputs of a cell that are the same at each execution: what it prints as one."""
    outputs = cell.get("outputs", [])
    printed = "".join(each["text"] for each in outputs if each.get("name") == "stdout")
    found = [{**each, "execution_count": None} for each in outputs if "data" in each]
    stream = {"name": "stdout", "output_type": "stream", "text": printed}
    return [stream, *found] if printed else found


def forms(notebook: Any) -> list[tuple[list[str], str]]:
    """Return, of each cell, the kinds of its outputs, and what it prints, without the numbers."""
    return [
        (
            [kind for each in lasting(cell) for kind in sorted(each.get("data", {}))],
            "".join(re.sub(r" *[\d.,]+", "0", each.get("text", "")) for each in lasting(cell)),
        )
        for cell in notebook.cells
    ]


def keep_outputs(notebook: Any, kept: Path) -> None:
    """Write the outputs of an execution into the notebook that is committed."""
    document = json.loads(kept.read_text())
    for cell, executed in zip(document["cells"], notebook.cells, strict=True):
        if cell["cell_type"] == "code":
            cell["outputs"] = lasting(executed)
    kept.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def runs(folder: Path) -> list[RunFolder]:
    """All runs, the oldest first."""
    return [RunFolder(path) for path in sorted((folder / "runs").iterdir())]


def test_quickstart(tmp_path: Path) -> None:
    notebook = execute(tmp_path, "quickstart.ipynb")
    assert images(notebook) == {"image/png", "image/gif"}
    kept = ROOT / "notebooks" / "quickstart.ipynb"
    if "SURREAL_LIKE_KEEP_OUTPUTS" in os.environ:
        keep_outputs(notebook, kept)
    shown = nbformat.read(kept, as_version=4)  # type: ignore[no-untyped-call]
    assert forms(shown) == forms(notebook), "run this test with SURREAL_LIKE_KEEP_OUTPUTS=1"
    run, trained, played = runs(tmp_path)
    result, stopped = run.read_result(), trained.read_result()
    assert result is not None
    assert (result["status"], result["goal_met"]) == ("stopped", True)
    assert (run.path / "curves.png").is_file()
    # The cell of the Trainer has printed the line at which it stopped, and none later.
    assert stopped is not None
    assert stopped["reason"] == "stopped by the script"
    means = re.findall(r"training return ([\d.]+)", texts(notebook))
    assert [float(mean) >= 100 for mean in means] == [False] * (len(means) - 1) + [True]
    # The cell of the client has played until the run had its goal.
    outside = played.read_result()
    assert outside is not None
    assert (outside["status"], outside["goal_met"]) == ("stopped", True)
    assert outside["gateway"]["sessions"] == 1
    played_there = re.search(r"(\d+) episodes played from outside", texts(notebook))
    assert played_there is not None
    # The run may be over before it has heard of the end of the last one.
    assert int(played_there[1]) - outside["episodes"] in (0, 1)


@pytest.mark.parametrize("launcher", [pytest.param("tmux", marks=pytest.mark.tmux), "local"])
def test_cluster_dashboard(tmp_path: Path, launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if launcher == "local":
        monkeypatch.setenv("PATH", str(tmp_path))
    notebook = execute(tmp_path, "cluster_dashboard.ipynb")
    said = texts(notebook)
    assert "agents wanted: 3" in said
    assert "killed process" in said
    assert "agent-2" in said
    assert "http://127.0.0.1:" in said
    assert "errors: " in said
    assert said.rstrip().count("interrupted: stopped from the dashboard") == 1
    kinds = {kind for output in outputs(notebook) for kind in output.get("data", {})}
    assert "application/vnd.jupyter.widget-view+json" in kinds
    assert images(notebook) == {"image/png"}
    [folder] = runs(tmp_path)
    assert not folder.in_use
    result = folder.read_result()
    assert result is not None
    # Killed once, and started again.
    assert result["components"]["agent-0"]["restarts"] == 1
