"""The examples of a document: which blocks are files, which are commands, and how they are run.

A comment on a line of its own in front of a block says what the block is. A block of code without
one is an error; texts and pictures need none.

    <!-- file: NAME -->            the block is the file NAME
    <!-- run -->                   a console block: each line after "$ " is a command that must
                                   succeed; a python block: a script; a yaml block: a part of an
                                   experiment file, whose settings must be known
    <!-- run slow -->              the same, among the slow tests; with a second comment as well
    <!-- run add="WORDS" exit=3 --> WORDS go behind each `surreal-like` command, which must end so
    <!-- session: NAME -->         console blocks that belong together: see test_sessions.py
    <!-- shown: REASON -->         the block is not run, and why; test_examples.py lists them all
"""

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

from main.cli import main
from session.config import Config
from session.config.defaults import BASE_CONFIG
from surreal_like.experiment.resolve import defaults
from surreal_like.experiment.resolve_process import try_all

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 100
SLOW_TIMEOUT_SECONDS = 350

CODE = ("console", "python", "yaml", "json", "bash", "sh")

_COMMENT = re.compile(r"<!-- (file|run|session|shown)\b:?(.*?)-->")
# In braces: a directive of the documentation site.
_FENCE = re.compile(r"```\{?(\w*)\}?[^`]*")


@dataclass(frozen=True)
class Run:
    """How a block is to be run."""

    slow: bool = False
    add: tuple[str, ...] = ()
    exit_code: int = 0

    @classmethod
    def parse(cls, text: str) -> "Run":
        words = shlex.split(text)
        entries = dict(word.split("=", 1) for word in words if word != "slow")
        unknown = set(entries) - {"add", "exit"}
        if unknown:
            raise ValueError(f"a run comment has no {', '.join(sorted(unknown))}")
        add = tuple(_words(entries.get("add", "")))
        return cls("slow" in words, add, int(entries.get("exit", "0")))


@dataclass
class Block:
    """One fenced block: its language, its text, and what the comments before it say."""

    language: str
    text: str
    file: str = ""
    runs: list[Run] = field(default_factory=list)
    session: str = ""
    shown: str = ""

    @property
    def marked(self) -> bool:
        """Whether a comment says what becomes of it."""
        return bool(self.file or self.runs or self.session or self.shown)

    def commands(self) -> list[list[str]]:
        """The words of each command of a console block."""
        lines = self.text.splitlines()
        return [shlex.split(line[2:]) for line in lines if line.startswith("$ ")]


def blocks(document: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a document, in order."""
    block: Block | None = None
    lines: list[str] = []
    said = Block("", "")  # by the comments since the last block
    for line in document.read_text().splitlines():
        if block is not None:
            if line.startswith("```"):
                block.text = "\n".join(lines) + "\n"
                yield block
                block, lines = None, []
            else:
                lines.append(line)
        elif match := _COMMENT.fullmatch(line.strip()):
            _add_mark(said, match[1], match[2].strip())
        elif match := _FENCE.fullmatch(line):
            block, said = replace(said, language=match[1]), Block("", "")
        elif line.strip() and said.marked:
            raise ValueError(f"{document.name}: a comment stands before no block: {line!r}")
    if block is not None:
        raise ValueError(f"{document.name}: the last block is not closed")


def _add_mark(block: Block, kind: str, rest: str) -> None:
    """Note what a comment says of the next block."""
    if kind == "run":
        block.runs.append(Run.parse(rest))
    else:
        setattr(block, kind, rest)


def write_files(document: Path, folder: Path) -> list[str]:
    """Write the files of a document into a folder; return their names."""
    found = {block.file: block.text for block in blocks(document) if block.file}
    for name, text in found.items():
        (folder / name).write_text(text)
    return list(found)


def run_examples(document: Path, folder: Path, *, slow: bool) -> int:
    """Run what a document says is run, in a folder that has its files; return how many.

    What is slow runs as it would in a terminal; of the rest `surreal-like` is called in this
    process, where torch is imported only once.
    """
    done = 0
    timeout = SLOW_TIMEOUT_SECONDS if slow else TIMEOUT_SECONDS
    for number, block in enumerate(blocks(document)):
        for how in block.runs:
            if how.slow != slow:
                continue
            done += 1
            if block.language == "python":
                script = folder / (block.file or f"example_{number}.py")
                script.write_text(block.text)
                line = ["python", str(script)]
                check(line, run(line, folder, timeout), 0)
                continue
            if block.language == "yaml":
                check_settings(block.text)
                continue
            for words in block.commands():
                own = words[0] == "surreal-like"
                line = [*words, *(how.add if own else ())]
                ended = call(line, folder) if own and not slow else run(line, folder, timeout)
                check(line, ended, how.exit_code)
    return done


def check_settings(text: str) -> None:
    """Check that a part of an experiment file has known keys and fitting values."""
    base = defaults("dqn").extend(BASE_CONFIG, abstract=True)
    Config({"algorithm": "dqn"} | yaml.safe_load(text)).extend(base, strict=True, abstract=True)


@dataclass(frozen=True)
class Ended:
    """How a command has ended, and what it has said."""

    code: int
    out: str
    err: str


def check(words: Sequence[str], ended: Ended, exit_code: int) -> None:
    """Fail, showing all, unless a command has ended with this code and without a traceback."""
    shown = f"$ {shlex.join(words)}\n{ended.out[-2000:]}\n{ended.err[-4000:]}"
    assert ended.code == exit_code, f"ended with {ended.code}:\n{shown}"
    assert "Traceback" not in ended.err, shown


def run(words: Sequence[str], folder: Path, timeout_seconds: float) -> Ended:
    """Run one command as a process of its own."""
    done = subprocess.run(
        program(words),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def call(words: Sequence[str], folder: Path) -> Ended:
    """Run one `surreal-like` command in this process, which has imported torch already."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        # Where "." was when it was looked into last.
        sys.path_importer_cache.pop(".", None)
        patch.setattr("surreal_like.experiment.resolve_process.try_elsewhere", try_all)
        with redirect_stdout(out), redirect_stderr(err):
            code = main(words[1:])
    return Ended(code, out.getvalue(), err.getvalue())


def program(words: Sequence[str]) -> list[str]:
    """The same command with this Python, installed or not."""
    own = {
        "surreal-like": [sys.executable, "-P", "-m", "main.cli"],
        "python": [sys.executable],
    }
    return [*own.get(words[0], [words[0]]), *words[1:]]


def _words(text: str) -> list[str]:
    """Words at spaces that are in no braces: an override may hold a mapping."""
    return re.findall(r"(?:\{[^}]*\}|\S)+", text)
