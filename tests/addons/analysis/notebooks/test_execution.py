"""Notebooks run from top to bottom without anybody in front of them, and end what they began.

With the variable SURREAL_LIKE_KEEP_OUTPUTS the notebooks keep the outputs of this execution.
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
from session.launchers.handle import open_run
from session.launchers.launcher import free_ports
from tests.addons.analysis.notebooks.lab import ROOT, copy_notebooks, environment

LIMIT_SECONDS = 240
KEEP = "SURREAL_LIKE_KEEP_OUTPUTS" in os.environ
# Widgets cannot be kept; what they show lies beside them.
WIDGETS = "application/vnd.jupyter.widget-view+json"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_SECONDS + 30)]


KEPT = "run this test with SURREAL_LIKE_KEEP_OUTPUTS=1"


def execute(folder: Path, name: str) -> Any:
    """Execute a copy of a notebook as its users would; return it with its outputs."""
    notebooks = copy_notebooks(folder)
    if not KEEP:
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
        if KEEP:
            end_runs(folder)
        assert list(Path(temp).glob("sl-*")) == []
    return nbformat.read(notebooks / name, as_version=4)  # type: ignore[no-untyped-call]


def end_runs(folder: Path) -> None:
    """End what goes on behind a notebook whose last lines are comments."""
    for run in runs(folder):
        if run.in_use:
            handle = open_run(run)
            handle.stop(interrupted=True, reason="outputs are kept")
            handle.wait(60.0)


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
    found = [
        {**each, "execution_count": None, "data": without_widgets(each["data"])}
        for each in outputs
        if "data" in each
    ]
    stream = {"name": "stdout", "output_type": "stream", "text": printed}
    return [stream, *found] if printed else found


def without_widgets(data: dict[str, Any]) -> dict[str, Any]:
    return {kind: value for kind, value in data.items() if kind != WIDGETS}


def forms(notebook: Any) -> list[tuple[list[str], str]]:
    """Return, of each cell, the kinds of its outputs, and what it prints, without the numbers."""
    return [
        (
            [kind for each in lasting(cell) for kind in sorted(each.get("data", {}))],
            "".join(re.sub(r" *[\d.,]+", "0", each.get("text", "")) for each in lasting(cell)),
        )
        for cell in notebook.cells
    ]


def kept_forms(notebook: Any, name: str) -> list[tuple[list[str], str]]:
    """Return the forms of the notebook that is committed; with KEEP it gets these outputs first."""
    kept = ROOT / "notebooks" / name
    if KEEP:
        keep_outputs(notebook, kept)
    return forms(nbformat.read(kept, as_version=4))  # type: ignore[no-untyped-call]


def keep_outputs(notebook: Any, kept: Path) -> None:
    """Write the outputs of an execution into the notebook that is committed."""
    document = json.loads(kept.read_text())
    for cell, executed in zip(document["cells"], notebook.cells, strict=True):
        if cell["cell_type"] == "code":
            cell["outputs"] = lasting(executed)
    kept.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def runs(folder: Path) -> list[RunFolder]:
    """All runs below `runs/`, the oldest first."""
    found = sorted((folder / "runs").iterdir())
    return [RunFolder(path) for path in found if RunFolder(path).config.is_file()]


def test_quickstart(tmp_path: Path) -> None:
    notebook = execute(tmp_path, "quickstart.ipynb")
    assert images(notebook) == {"image/png", "image/gif"}
    assert kept_forms(notebook, "quickstart.ipynb") == forms(notebook), KEPT
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


def test_own_environment(tmp_path: Path) -> None:
    notebook = execute(tmp_path, "own_environment.ipynb")
    shown = kept_forms(notebook, "own_environment.ipynb")
    # The way that the policy takes is another one where floats are rounded otherwise.
    assert shown[:-1] == forms(notebook)[:-1], KEPT
    [run] = runs(tmp_path)
    result = run.read_result()
    assert result is not None
    assert result["goal_met"]
    assert "no mistakes" in texts(notebook)
    way = "".join(lasting(notebook.cells[-1])[0]["text"]).splitlines()
    assert all("R" in line and "G" in line for line in way)


def test_own_algorithm(tmp_path: Path) -> None:
    notebook = execute(tmp_path, "own_algorithm.ipynb")
    assert kept_forms(notebook, "own_algorithm.ipynb") == forms(notebook), KEPT
    assert images(notebook) == {"image/png"}
    assert len(re.findall(r"best return [\d.]+", texts(notebook))) == 6


@pytest.mark.parametrize("launcher", [pytest.param("tmux", marks=pytest.mark.tmux), "local"])
def test_cluster_dashboard(tmp_path: Path, launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if launcher == "local":
        monkeypatch.setenv("PATH", str(tmp_path))
    notebook = execute(tmp_path, "cluster_dashboard.ipynb")
    kept = kept_forms(notebook, "cluster_dashboard.ipynb")
    # Which words a table has depends on the moment.
    assert [kinds for kinds, _ in kept] == [kinds for kinds, _ in forms(notebook)], KEPT
    assert [bool(text) for _, text in kept] == [bool(text) for _, text in forms(notebook)], KEPT
    said = texts(notebook)
    if KEEP:
        return
    assert "agents wanted: 3" in said
    assert "killed process" in said
    assert "agent-2" in said
    assert "http://127.0.0.1:" in said
    assert "errors: " in said
    assert said.rstrip().count("interrupted: stopped from the dashboard") == 1
    kinds = {kind for output in outputs(notebook) for kind in output.get("data", {})}
    assert WIDGETS in kinds
    assert images(notebook) == {"image/png"}
    [folder] = runs(tmp_path)
    assert not folder.in_use
    result = folder.read_result()
    assert result is not None
    # Killed once, and started again.
    assert result["components"]["agent-0"]["restarts"] == 1
