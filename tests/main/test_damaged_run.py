"""Every file of a run's and a tuning's folder, damaged in every way, and what users call then.

Each reader repairs from what is left, leaves out what is damaged, or ends with one line that names
the file: never a traceback, and never a count that falls.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import surreal_like
from session.addons.gateway.client_tokens import write_token
from session.errors import SurrealError
from session.folder import RunFolder
from surreal_like.run.train import Run
from tests.add_ons import needs
from tests.addons.tuning_plot.test_plot import make as make_tuning
from tests.main.conftest import Command
from tests.session.damage import DAMAGES, Damage

SESSION = {
    "name": "s-1",
    "mode": "train",
    "address": "10.0.0.1",
    "state": "active",
    "steps": 10,
    "episodes": 1,
    "last_return": None,
    "round_trip_seconds": 0.1,
    "idle_seconds": 0.5,
}


def put_folder_there(path: Path) -> None:
    path.unlink()
    path.mkdir()


def put_pipe_there(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def set_high_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 0x80
    path.write_bytes(content)


def write(content: str) -> Damage:
    return lambda path: path.write_text(content)


EVERY: dict[str, Damage] = {
    **DAMAGES,
    "high bit": set_high_bit,
    "a folder": put_folder_there,
    "a named pipe": put_pipe_there,
    "a list": write("[1]\n"),
    "a number": write("5\n"),
    "no fields": write("{}\n"),
}
# A log of lines gets them at its end, too.
_LINES = ("[1]\n", "5\n", "{}\n", '{"event": 5, "time": "x"}\n', '{"env_steps": 99', "\x00\n")
LINES: dict[str, Damage] = {
    f"line {text[:12]}": lambda path, text=text: path.write_text(path.read_text() + text)  # type: ignore[misc]
    for text in _LINES
}
FILES = (
    "config.yaml",
    "topology.json",
    "addresses.json",
    "result.json",
    "progress.jsonl",
    "events.jsonl",
    "alive/learner",
    "gateway/gateway-0.json",
    "keys/clients/robot",
    "checkpoints/learner/record.json",
    "checkpoints/learner/newest/state.json",
)
# Files that are not read as JSON: what matters is that they are files.
OTHERS = ("checkpoints/learner/newest/params.safetensors", "code/source.tar.gz", "logs/all.log")
# Each file of a run folder with each damage.
PLACES = [
    (file, name)
    for file in FILES
    for name in ({**EVERY, **LINES} if file.endswith(".jsonl") else EVERY)
] + [(file, name) for file in OTHERS for name in ("a folder", "a named pipe")]
_QUICK = ("cut", "other JSON", "a named pipe", "line {}")


def some(places: Sequence[tuple[str, str]]) -> list[Any]:
    """Return the places as parameters, most of them slow."""
    slow = pytest.mark.slow
    return [
        pytest.param(*place, marks=() if place[1].strip() in _QUICK else slow) for place in places
    ]


TUNINGS = some(
    [
        (file, name)
        for file in ("tuning.json", "tune.yaml", "pbt.jsonl", "events.jsonl")
        for name in {**EVERY, **LINES}
    ]
)


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    """Ends a reader that waits for the writer of a pipe."""

    def end(*_: object) -> None:
        # Not an OSError, which readers handle.
        raise AssertionError("a reader waits")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(100)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def saved(ended_run: Path) -> Path:
    """Return the folder of a run that has ended, with two gateways' files that others have."""
    folder = RunFolder(ended_run)
    folder.gateways.mkdir()
    (folder.gateways / "gateway-0.json").write_text(json.dumps({"sessions": [SESSION]}))
    write_token(folder.client_tokens, "robot", modes=["act"])
    return ended_run


@pytest.fixture
def run(saved: Path, command: Command, quick: None) -> Path:
    """Return a copy of it, below the current folder."""
    without = shutil.ignore_patterns("tensorboard")
    return shutil.copytree(saved, Path("runs/run"), ignore=without)


def damage(run: Path, file: str, name: str) -> Path:
    """Damage a file and return it; the newest checkpoint is that of the largest number."""
    numbers = [each.name for each in (run / "checkpoints/learner").iterdir() if each.name.isdigit()]
    path = run / file.replace("newest", max(numbers, key=int, default=""))
    {**EVERY, **LINES}[name](path)
    return path


# What looks at a run that is over, with its exit code.
COMMANDS = {
    ("status", "run"): 0,
    ("status", "run", "--json"): 0,
    ("doctor", "run"): 0,
    ("doctor", "run", "--json"): 0,
    ("list", "runs"): 0,
    ("clients", "run"): 0,
    ("logs", "run"): 0,
    ("stop", "run"): 2,
    ("scale", "run", "agent=2"): 2,
    ("probe", "run", "learner"): 1,
    ("plot", "run", "--list"): 0,
}


def is_one_line(err: str, path: Path) -> bool:
    return err.count("\n") == 1 and err.startswith("surreal-like: ") and str(path.name) in err


@pytest.mark.parametrize(("file", "name"), some(PLACES))
def test_what_looks_at_a_run_survives_damage(
    command: Command, run: Path, file: str, name: str
) -> None:
    path = damage(run, file, name)
    for argv, healthy in COMMANDS.items():
        said = command(*argv)
        assert said.err.count("\n") <= 1, said.err
        if said.code != healthy:
            assert said.code == 2, (argv, said.err)
            assert is_one_line(said.err, path), said.err
    lines = Run(run, {}).progress()
    steps = [line["env_steps"] for line in lines]
    assert steps == sorted(steps)
    assert steps or path.name == "progress.jsonl"


def test_a_config_without_its_settings_is_named(command: Command, run: Path) -> None:
    path = run / "config.yaml"
    before, begin, _ = path.read_text().partition("session_config:\n")
    path.write_text(f"{before}{begin}  sockets: {{}}\n")
    for argv, healthy in COMMANDS.items():
        said = command(*argv)
        assert said.code == healthy or (said.code == 2 and is_one_line(said.err, path)), said.err
    assert command("probe", "run", "learner").err.startswith(
        "surreal-like: error: runs/run/config.yaml has no key session_config.heartbeat; keys here:"
    )


@pytest.mark.parametrize("file", ["state.json", "params.safetensors", "optimizer.pt"])
@pytest.mark.parametrize("name", ["a folder", "a named pipe"])
def test_a_checkpoint_that_is_no_file_is_named(run: Path, file: str, name: str) -> None:
    path = damage(run, f"checkpoints/learner/newest/{file}", name)
    with pytest.raises(SurrealError, match=path.name):
        surreal_like.load_policy(run, "latest")


@pytest.mark.parametrize("name", ["a folder", "a named pipe"])
@pytest.mark.parametrize(
    "file",
    [
        "config.yaml",
        "progress.jsonl",
        pytest.param("metrics.csv", marks=needs("sinks")),
        "code/source.tar.gz",
        "logs/all.log",
        ".lock",
    ],
)
def test_what_is_no_file_is_named_before_a_run_goes_on(run: Path, file: str, name: str) -> None:
    (run / file).parent.mkdir(exist_ok=True)
    (run / file).touch()
    damage(run, file, name)
    said = resume(run)
    assert isinstance(said, str)
    assert (str(run) if file == ".lock" else Path(file).name) in said
    assert "\n" not in said


def resume(run: Path) -> Run | str:
    """Go on with the run for more steps; return the error of one that is refused."""
    longer = {"session_config.stop.env_steps": 1500}
    try:
        return surreal_like.train(launcher="serial", folder=run, resume=True, overrides=longer)
    except SurrealError as error:
        return str(error)


def check_resumed(run: Path, file: str, name: str) -> None:
    before = max((line["env_steps"] for line in Run(run, {}).progress()), default=0)
    path = damage(run, file, name)
    ended = resume(run)
    if isinstance(ended, str):
        assert path.name in ended, ended
        assert "\n" not in ended
        return
    assert ended.ok, ended.details
    steps = [line["env_steps"] for line in ended.progress()]
    assert steps == sorted(steps)
    if file != "progress.jsonl":
        assert ended.result["env_steps"] > before


@pytest.mark.parametrize(
    ("file", "name"),
    [
        pytest.param("progress.jsonl", "high bit", marks=pytest.mark.slow),
        pytest.param("progress.jsonl", "cut", marks=pytest.mark.slow),
        ("result.json", "other JSON"),
        ("alive/learner", "a folder"),
        ("code/source.tar.gz", "a folder"),
        pytest.param("code/packages.txt", "a named pipe", marks=pytest.mark.slow),
        pytest.param("checkpoints/learner/record.json", "a byte", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_run_goes_on_or_is_refused(run: Path, file: str, name: str) -> None:
    check_resumed(run, file, name)


# Each file with some of the damages, each damage with some of the files: they share readers.
@pytest.mark.slow
@pytest.mark.parametrize(("file", "name"), PLACES[::8])
def test_a_run_with_any_damage_goes_on_or_is_refused(run: Path, file: str, name: str) -> None:
    check_resumed(run, file, name)


@pytest.mark.parametrize("below", ["logs", "alive", "checkpoints", "checkpoints/learner"])
def test_a_file_in_the_place_of_a_folder_is_named(run: Path, below: str) -> None:
    shutil.rmtree(run / below)
    (run / below).write_text("")
    ended = resume(run)
    assert isinstance(ended, str)
    assert ended.startswith(f"{run / below} is a file, a run has a folder there")


def test_a_damaged_result_is_named_where_the_state_is_shown(command: Command, run: Path) -> None:
    (run / "result.json").write_text('{"status": "stopped", "env_steps": "many"}')
    said = command("status", "run")
    assert said.code == 0
    assert "runs/run/result.json is damaged: env_steps is 'many'" in said.out.replace("\n", " ")
    assert "expected a whole number" in said.out
    (run / "result.json").unlink()
    assert "damaged" not in command("status", "run").out


@pytest.mark.parametrize("change", ["", "gamma: 0.99", "seed: 0"])
def test_an_edited_config_is_named_when_the_run_goes_on(
    command: Command, run: Path, change: str
) -> None:
    path = run / "config.yaml"
    text = path.read_text()
    assert text.count(f" {change}\n") == 1 or not change
    path.write_text(text.replace(f" {change}\n", f" {change}5\n") if change else text)
    said = command("train", "--resume", "--folder", str(run), "--on", "serial")
    # Before anything is started.
    assert "has used its budget" in said.err
    assert (f"{path} was edited since the run began" in said.out) == (change == "gamma: 0.99")


# -- wrong types in fields -------------------------------------------------------------------------

WRONG: tuple[Any, ...] = ("x", [1], {"a": 1}, None, -1, True, 10**400, 1e999, [], {})


def changed(value: Any, new: Callable[[int], Any], path: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Yield the value with each part of it replaced, and with each entry left out."""
    yield new(len(path) + len(str(path)))
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield {name: each for name, each in value.items() if name != key}
            yield from ({**value, key: each} for each in changed(inner, new, (*path, key)))
    elif isinstance(value, list) and value:
        yield from ([each, *value[1:]] for each in changed(value[0], new, (*path, 0)))


@pytest.mark.parametrize(
    ("turn", "every"),
    [(0, 9), *(pytest.param(turn, 3, marks=pytest.mark.slow) for turn in range(3))],
)
@pytest.mark.parametrize(
    "file", [file for file in FILES if not file.startswith(("config", "checkpoints"))]
)
def test_fields_of_wrong_types_never_make_a_traceback(
    command: Command, run: Path, file: str, turn: int, every: int
) -> None:
    path = run / file
    *before, last = path.read_text().splitlines() if file.endswith("l") else [path.read_text()]
    argv = ("clients", "run") if file.startswith(("gateway", "keys")) else ("status", "run")
    found = changed(json.loads(last), lambda place: WRONG[(place + turn) % len(WRONG)])
    for content in list(found)[turn::every]:
        path.write_text("\n".join([*before, json.dumps(content), ""]))
        said = command(*argv)
        assert said.code in (0, 2)
        assert said.err.count("\n") <= 1, said.err
        Run(run, dict(RunFolder(run).read_result() or {})).progress()


# -- tunings ---------------------------------------------------------------------------------------

TUNING_COMMANDS = (
    ("status", "runs/tuning"),
    ("status", "runs/tuning", "--json"),
    ("list", "runs"),
    ("logs", "runs/tuning"),
    ("evaluate", "runs/tuning"),
    ("plot", "runs/tuning", "--lineage", "--out", "l.png"),
    ("tune", "--replay", "runs/tuning/trial-000", "--folder", "again", "space.x=[1]"),
    ("tune", "--resume", "--folder", "runs/tuning", "tune.metric=iterations"),
)


@pytest.mark.parametrize(("file", "name"), TUNINGS)
def test_what_looks_at_a_tuning_survives_damage(
    command: Command, quick: None, file: str, name: str
) -> None:
    Path("runs").mkdir()
    path = make_tuning(Path("runs/tuning"), 4) / file
    if file == "events.jsonl":
        event = {"time": 5.0, "trial": "trial-000", "event": "started", "detail": "begins"}
        path.write_text(f"{json.dumps(event)}\n" * 3)
    {**EVERY, **LINES}[name](path)
    for argv in TUNING_COMMANDS:
        said = command(*argv)
        assert said.code in (0, 2), said.err
        assert len(said.err.splitlines()) <= 1 + said.err.startswith("best trial"), said.err
    if file == "pbt.jsonl" and name in ("high bit", "a list", "a folder"):
        drawn = command("plot", "runs/tuning", "--lineage", "--out", "l.png")
        assert drawn.code == 2
        assert "runs/tuning/pbt.jsonl" in drawn.err
