"""The programs of docs/your_own_client.md, each as it stands there, beside a gateway."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from main.addons.gateway import client
from tests.addons.gateway.rig import Stage, make_stage
from tests.docs.examples import ROOT, write_files

ADDRESS = "127.0.0.1:7100"
PAGE = ROOT / "docs" / "your_own_client.md"
CPP = pytest.param("corridor.cpp", marks=[pytest.mark.gxx, pytest.mark.slow])


@pytest.fixture
def stage() -> Iterator[Stage]:
    # As of a replay of transitions: clients may correct actions.
    with make_stage() as made:
        yield made


def command(folder: Path, name: str) -> list[str]:
    """Starts a program; what has to be compiled is."""
    if name.endswith(".py"):
        return [sys.executable, name]
    if name.endswith(".mjs"):
        return ["node", name]
    subprocess.run(["g++", "-std=c++17", "-O0", name, "-o", "program"], cwd=folder, check=True)
    return ["./program"]


@pytest.mark.parametrize(
    "name",
    [
        "corridor.py",
        pytest.param("corridor.mjs", marks=pytest.mark.node),
        CPP,
        pytest.param("robot.py", marks=pytest.mark.slow),
        "by_itself.py",
    ],
)
def test_a_program_of_the_page_plays_until_the_run_is_over(
    name: str, stage: Stage, tmp_path: Path
) -> None:
    write_files(PAGE, tmp_path)
    program = tmp_path / name
    text = program.read_text()
    assert ADDRESS in text
    program.write_text(text.replace(ADDRESS, f"127.0.0.1:{stage.port}"))
    languages = {".py": "python", ".mjs": "javascript", ".cpp": "cpp"}
    client.run(["--copy", languages[program.suffix], str(tmp_path)])
    child = subprocess.Popen(
        command(tmp_path, name), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        stage.rig.until(lambda: stage.service._recorder.sender.episodes >= 3 or child.poll())
        stage.learner.publish(final=True)
        stage.rig.until(lambda: child.poll() is not None)
    finally:
        child.kill()
        said = child.communicate()[0]
    assert (child.returncode, said) == (0, b"")
    episodes = [each for chunk in stage.replay.chunks for each in chunk.finished]
    # The robot adds up the rewards of ticks without advice.
    assert name == "robot.py" or all(each["return"] == -each["length"] for each in episodes)
    assert all(5 <= each["length"] <= 30 for each in episodes)


def test_no_example_reports_a_termination_as_a_truncation() -> None:
    """Both flags may be true at once: then nothing follows, and the value of the end is 0."""
    places = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for pattern in (
            "*.md",
            "docs/*.md",
            "surreal_like/**/*.*",
            "tests/addons/gateway/**/*.py",
            "tests/runs/*.py",
            "notebooks/*",
        )
        for path in ROOT.glob(pattern)
        if path.suffix in (".md", ".py", ".js", ".hpp", ".cpp", ".html", ".ipynb")
        for line in path.read_text().splitlines()
        if re.search(r"\bend\(.*truncated\s*[=:]\s*(bool\()?truncated\)*\s*[,})]", line)
    ]
    assert places == []
