"""A name that no file can have, wherever a command or a call may get a path: one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

import surreal_like
from session.errors import SurrealError
from tests.main.conftest import Command

LONG = "n" * 256
DEEP = "/".join(["n" * 200] * 25)
EXPERIMENT = ("--algorithm", "dqn", "--env", "toy:chain")
SERIAL = ("train", *EXPERIMENT, "--on", "serial")

# Command lines, with {} for the long name.
PLACES: tuple[tuple[str, ...], ...] = (
    *((name, "{}") for name in ("status", "stop", "logs", "attach", "clients", "keys")),
    *((name, "{}") for name in ("evaluate", "play", "plot", "compare", "serve", "export")),
    *((name, "{}.yaml") for name in ("plan", "train", "launch", "tune", "check")),
    *((name, "{}/{}.yaml") for name in ("plan", "tune", "check")),
    ("restart", "{}", "learner"),
    ("scale", "{}", "agent=2"),
    ("probe", "{}", "learner"),
    ("join", "--print", "{}"),
    ("join", "127.0.0.1:1", "--token", "x", "--algorithm", "{}.py"),
    ("tune", "--resume", "--folder", "{}"),
    ("tune", "--replay", "{}/trial-000"),
    (*SERIAL, "--folder", "{}"),
    (*SERIAL, "--folder", "below/{}/run"),
    (*SERIAL, "--from", "{}"),
    (*SERIAL, "--from", "{}:best"),
    (*SERIAL, "session_config.folder={}"),
    (*SERIAL, "session_config.import_path=[{}]"),
    (*SERIAL, "learner_config.execution_plan={}.py:plan"),
    (*SERIAL, "session_config.gateway={{num: 1, tls: {{cert: {}, key: k}}}}"),
    ("train", "--resume", "--folder", "{}"),
    ("train", "--on", "serial", "--algorithm", "{}.py:Own", "--env", "toy:chain"),
    ("train", "--on", "serial", "--algorithm", "{}", "--env", "toy:chain"),
    ("plan", *EXPERIMENT, "--format", "shell", "--folder", "{}"),
    ("train", "--on", "serial", "--algorithm", "dqn", "--env", "{}"),
    ("client", "127.0.0.1:1", "--env", "{}.py:Echo", "--num", "1"),
)


@pytest.mark.parametrize("name", [LONG, DEEP], ids=["long", "deep"])
@pytest.mark.parametrize("argv", PLACES, ids=" ".join)
def test_a_name_that_no_file_can_have_is_refused_in_one_line(
    command: Command, quick: None, argv: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    said = command(*(word.format(*[name] * word.count("{}")) for word in argv))
    assert (said.code, said.err.count("\n")) == (2, 1), said.err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("number", [3, 30])
def test_a_setting_may_be_longer_than_a_name_of_a_file(
    command: Command, quick: None, number: int
) -> None:
    sizes = ", ".join(["32"] * number)
    word = f"learner_config={{model: {{hidden_sizes: [{sizes}]}}, algo: {{gamma: 0.9}}}}"
    word += " " * (300 - len(word))
    said = command("plan", *EXPERIMENT, word)
    assert (said.code, said.err) == (0, "")


@pytest.mark.parametrize(
    "given", [{"folder": LONG}, {"start_from": LONG}, {"resume": True, "folder": LONG}], ids=str
)
def test_a_script_gets_the_error_of_a_wrong_path(given: dict[str, object], quick: None) -> None:
    with pytest.raises(SurrealError):
        surreal_like.train(algorithm="dqn", env="toy:chain", launcher="serial", **given)  # type: ignore[arg-type]
