"""Notebooks as they are committed: for any machine, of valid form, with outputs."""

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[4]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MACHINE = re.compile(r"(?<![\w.<])/(work|home|Users|root|tmp|opt|usr)/|https?://(?!127\.0\.0\.1)")
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def test_notebooks_are_there() -> None:
    names = ["cluster_dashboard", "own_algorithm", "own_environment", "quickstart"]
    assert [path.stem for path in NOTEBOOKS] == names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_kept(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    kinds = {
        kind
        for cell in cells
        for output in cell.get("outputs", [])
        for kind in output.get("data", {})
    }
    assert "image/png" in kinds


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_of_a_session_is_kept(path: Path) -> None:
    notebook: dict[str, Any] = json.loads(path.read_text())
    nbformat.validate(notebook)
    assert notebook["metadata"] == METADATA
    for number, cell in enumerate(notebook["cells"]):
        assert cell["id"] == f"cell-{number}"
        assert cell["metadata"] == {}
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_place_of_one_machine_and_no_address_elsewhere(path: Path) -> None:
    assert MACHINE.findall(path.read_text()) == []


@pytest.mark.parametrize("text", ["x /home" + "/a", "(/tmp" + "/run)", "see http://example.org/"])
def test_places_and_addresses_are_seen(text: str) -> None:
    assert MACHINE.search(text)


def test_running_all_cells_leaves_the_run_to_play_with() -> None:
    cells = json.loads((ROOT / "notebooks" / "cluster_dashboard.ipynb").read_text())["cells"]
    lines = [
        line.strip() for cell in cells if cell["cell_type"] == "code" for line in cell["source"]
    ]
    assert "# board.stop()" in lines
    assert "board.stop()" not in lines


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_code_cell_is_explained_and_short(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    assert cells[0]["cell_type"] == "markdown"
    assert "".join(cells[0]["source"]).startswith("# ")
    for cell in cells:
        if cell["cell_type"] == "code":
            assert len(cell["source"]) <= 12
