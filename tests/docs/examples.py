"""The examples of a document: which blocks are files, which are commands, and how they are run.

A comment on a line of its own in front of a block says what the block is. Blocks without one are
only shown.

    <!-- file: NAME -->            the block is the file NAME
    <!-- run -->                   a console block: each line after "$ " is a command that must
                                   succeed; a python block: a script
    <!-- run slow -->              the same, among the slow tests; with a second comment as well
    <!-- run add="WORDS" exit=3 --> WORDS go behind each `surreal-like` command, which must end so
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 100
SLOW_TIMEOUT_SECONDS = 350

_COMMENT = re.compile(r"<!-- (file|run)\b:?(.*?)-->")
_FENCE = re.compile(r"```(\w*)")


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

    def commands(self) -> list[list[str]]:
        """The words of each command of a console block."""
        lines = self.text.splitlines()
        return [shlex.split(line[2:]) for line in lines if line.startswith("$ ")]


def blocks(document: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a document, in order."""
    block: Block | None = None
    lines: list[str] = []
    file, runs = "", []
    for line in document.read_text().splitlines():
        if block is not None:
            if line.startswith("```"):
                block.text = "\n".join(lines) + "\n"
                yield block
                block, lines = None, []
            else:
                lines.append(line)
        elif match := _COMMENT.fullmatch(line.strip()):
            kind, rest = match[1], match[2].strip()
            if kind == "file":
                file = rest
            else:
                runs.append(Run.parse(rest))
        elif match := _FENCE.fullmatch(line):
            block = Block(match[1], "", file, runs)
            file, runs = "", []
        elif line.strip() and (file or runs):
            raise ValueError(f"{document.name}: a comment stands before no block: {line!r}")
    if block is not None:
        raise ValueError(f"{document.name}: the last block is not closed")


def write_files(document: Path, folder: Path) -> list[str]:
    """Write the files of a document into a folder; return their names."""
    found = {block.file: block.text for block in blocks(document) if block.file}
    for name, text in found.items():
        (folder / name).write_text(text)
    return list(found)


def run_examples(document: Path, folder: Path, *, slow: bool) -> int:
    """Run what a document says is run, in a folder that has its files; return how many."""
    done = 0
    timeout = SLOW_TIMEOUT_SECONDS if slow else TIMEOUT_SECONDS
    for number, block in enumerate(blocks(document)):
        for run in block.runs:
            if run.slow != slow:
                continue
            done += 1
            if block.language == "python":
                script = folder / (block.file or f"example_{number}.py")
                script.write_text(block.text)
                succeed(["python", str(script)], folder, timeout_seconds=timeout)
                continue
            for words in block.commands():
                extra = run.add if words[0] == "surreal-like" else ()
                succeed([*words, *extra], folder, run.exit_code, timeout_seconds=timeout)
    return done


def succeed(
    words: Sequence[str], folder: Path, exit_code: int = 0, *, timeout_seconds: float
) -> None:
    """Run one command in a folder and check how it ends."""
    done = subprocess.run(
        program(words),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
    )
    shown = f"$ {shlex.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == exit_code, f"ended with {done.returncode}:\n{shown}"
    assert "Traceback" not in done.stderr, shown


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
