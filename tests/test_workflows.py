"""The workflows: each step is a command of this repository, each action has a version."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
VERSIONED = re.compile(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+|docker://[\w/-]+:\d+\.\d+\.\d+")
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return found


def wrong_steps(job: dict[str, Any]) -> list[str]:
    """Return the commands that are not of this repository, and the actions without a version."""
    commands = [step["run"] for step in job["steps"] if "run" in step]
    actions = [step["uses"] for step in job["steps"] if "uses" in step]
    return [
        *(each for each in commands if not is_ours(each)),
        *(each for each in actions if not VERSIONED.fullmatch(each)),
    ]


def is_ours(command: str) -> bool:
    program, *words = command.split()
    if program == "make":
        return set(words) <= TARGETS
    return not words and (ROOT / program).is_file()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_steps_are_commands_of_this_repository_and_actions_with_a_version(path: Path) -> None:
    assert {name: wrong_steps(job) for name, job in jobs(path).items() if wrong_steps(job)} == {}


@pytest.mark.parametrize(
    "step",
    [
        {"run": "make tset"},
        {"run": "make test\nmake tset"},
        {"run": "curl somewhere | sh"},
        {"uses": "actions/checkout@v5"},
        {"uses": "actions/checkout@main"},
        {"uses": "docker://rhysd/actionlint:latest"},
    ],
    ids=str,
)
def test_another_step_is_noticed(step: dict[str, str]) -> None:
    assert wrong_steps({"steps": [{"run": "make test"}, step]}) == [*step.values()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_workflow_has_no_rights_and_an_end(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["cancel-in-progress"]
    for job in jobs(path).values():
        assert "permissions" not in job
        assert job["timeout-minutes"] <= 60
        assert re.fullmatch(r"ubuntu-\d\d\.\d\d", job["runs-on"])
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_each_python_that_setup_names_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(given["classifiers"]))
    matrix = jobs(ROOT / ".github" / "workflows" / "test.yml")["test"]["strategy"]["matrix"]
    assert matrix["python"] == named


def test_all_that_can_be_built_is_built() -> None:
    commands = {
        step.get("run") for path in FILES for job in jobs(path).values() for step in job["steps"]
    }
    assert {".ci/run", "make docs", "make wheel", "make image", "make kind-test"} <= commands


def test_read_the_docs_builds_the_site_by_make_docs() -> None:
    build = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())["build"]
    commands = build["jobs"]["build"]["html"]
    assert any(command.endswith("make docs") for command in commands)
