"""Every command writes where its characters are lacking, and names output that fails."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from main.cli import main
from main.cli.output import OutputError, prepare_output
from session.addons import add_ons
from tests.add_ons import needs
from tests.main.conftest import CONFIG

RUN, RECORDING = "größer", "Größe"
TUNING = "experiment: small.yaml\ntune: {trials: 2, stop: {env_steps: 200}}\n"
# The words of each command that prints something about a run, an experiment or nothing.
COMMANDS = {
    "help": ("--help",),
    "help of a command": ("train", "--help"),
    "list": ("list", "environments"),
    "algorithms": ("list", "algorithms"),
    "experiments": ("list", "experiments"),
    "init": ("init", "{new}/größte"),
    "status": ("status", RUN),
    "logs": ("logs", RUN),
    "plan": ("plan", "small.yaml", "session_config.agent.num=4"),
    "mermaid": ("plan", "small.yaml", "session_config.agent.num=4", "--format", "mermaid"),
    "explain": ("plan", "small.yaml", "--explain"),
    "plan of a tuning": ("plan", "größer.yaml"),
    "check": ("check", "toy:chain", "--steps", "20"),
    "evaluate": ("evaluate", RUN, "--episodes", "2", "--checkpoint", "latest"),
    "record": ("record", RUN, "--episodes", "2", "--out", "{new}/größte"),
    "data": ("data", RECORDING),
    "clients": ("clients", RUN),
    "train": ("train", "small.yaml", "--on", "serial", "--folder", "{new}/größte"),
}
OF_ADD_ONS = {
    "plan of a tuning": "tuning",
    "evaluate": "analysis",
    "clients": "gateway",
    **dict.fromkeys(("record", "data"), "recording"),
}
NAMES = [
    pytest.param(name, marks=needs(OF_ADD_ONS[name])) if name in OF_ADD_ONS else name
    for name in COMMANDS
]


class Failing(io.StringIO):
    """A stream that keeps nothing, not even at the flush."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error

    def flush(self) -> None:
        raise self.error


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder with an experiment, a tuning, and a run that has ended; names have umlauts."""
    folder = tmp_path_factory.mktemp("printed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "small.yaml").write_text(CONFIG)
        (folder / f"{RUN}.yaml").write_text(TUNING)
        words = ["train", "small.yaml", "--on", "serial", "--quiet", "--folder", RUN]
        assert main([*words, "session_config.stop.env_steps=300"]) in (0, 3)
        if "recording" in add_ons():
            assert main(["record", RUN, "--episodes", "1", "--out", RECORDING]) == 0
        yield folder


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("command", "quick")
def test_a_full_disk_is_one_line(
    name: str,
    here: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(here)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Failing(OSError(errno.ENOSPC, "No space left on device")))
        code = main([word.format(new=tmp_path) for word in COMMANDS[name]])
    assert code == 1
    said = capsys.readouterr().err
    assert said.endswith("error: the output cannot be written: No space left on device\n")
    assert "Traceback" not in said


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("command", "quick")
def test_ascii_is_enough(
    name: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main([word.format(new=tmp_path) for word in COMMANDS[name]]) in (0, 3)
    assert written.getvalue().decode("ascii")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("run · 3 s", "run - 3 s"),
        ("━━──", "==--"),
        ("agent-0 … agent-3", "agent-0 ... agent-3"),
        ("größer", r"gr\xf6\xdfer"),
        ("名", r"\u540d"),
        # A name of a file that is no UTF-8.
        ("a\udcff", r"a\udcff"),
    ],
)
def test_what_an_encoding_lacks(text: str, plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with prepare_output():
        sys.stdout.write(f"{text}\n")
    assert written.getvalue().decode("ascii") == f"{plain}\n"


def test_a_closed_pipe_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Failing(BrokenPipeError()))
        assert main(["list", "algorithms"]) == 0


def test_errors_of_other_files_are_not_those_of_the_output() -> None:
    with pytest.raises(OSError, match="elsewhere") as error, prepare_output():
        raise OSError(28, "elsewhere")
    assert not isinstance(error.value, OutputError)
