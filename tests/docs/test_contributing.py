"""The first hour of a contributor, as CONTRIBUTING.md describes it, in a copy of the tree."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.examples import ROOT, blocks

PAGE = ROOT / "CONTRIBUTING.md"
COPIED = ("main", "session", "surreal_like", "tests", "pyproject.toml", "setup.py")
PROGRAMS = {
    ".venv/bin/python": [sys.executable],
    ".venv/bin/surreal-like": [sys.executable, "-m", "surreal_like"],
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_step_shows_what_the_page_says(tree: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree), "TMPDIR": str(tree)}
    done = 0
    for block in blocks(PAGE):
        if block.language == "diff":
            subprocess.run(["git", "apply"], input=block.text, cwd=tree, text=True, check=True)
        elif block.language == "console":
            command, expected = block.text.splitlines()
            program, *words = shlex.split(command.removeprefix("$ "))
            ran = subprocess.run(
                [*PROGRAMS[program], *words],
                cwd=tree,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=150,
            )
            assert re.sub(r"\s+", " ", expected) in re.sub(r"\s+", " ", ran.stdout), ran.stderr
            done += 1
    assert done == 3
