"""Shared setting of the scripts: their command line, folders, installed peers."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from environments import install, versions


@dataclass
class Given:
    """Arguments of the command line, and the available peers.

    Attributes:
        rounds: of each group.
        seconds: approximate duration of a round.
        folder: for the files of our runs; removed at the end.
        pythons: peer -> interpreter of its environment.
        versions: package -> version, of all peers.
        left_out: peer -> reason.
        parts: parts to measure.
    soak: minutes of a soak, instead of all groups; None: there is none.
        clients: of the soak.
    """

    rounds: int
    seconds: float
    folder: Path
    pythons: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    soak: float | None = None
    clients: int = 256


def seeds_of(text: str) -> list[int]:
    """Parses ``1..5`` or ``1,4,9``."""
    first, dots, last = text.partition("..")
    return (
        list(range(int(first), int(last) + 1)) if dots else [int(each) for each in text.split(",")]
    )


def add_seeds(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds the option of the seeds."""
    parser.add_argument("--seeds", default=default, help="1..5 or 1,4,9: one run for each")


def add_scratch(parser: argparse.ArgumentParser) -> None:
    """Adds the option of the folder in which peers are installed."""
    parser.add_argument(
        "--scratch",
        type=Path,
        default=Path(tempfile.gettempdir()) / "surreal-like-peers",
        help="folder of the peers' environments, which are kept there",
    )


@contextmanager
def run_folders(keep: Path | None) -> Iterator[Path]:
    """Yields the folder for the folders of runs: one that stays, or one that is removed."""
    if keep is not None:
        yield keep.resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="sl-bench-") as folder:
            yield Path(folder)


@contextmanager
def arguments(
    description: str | None,
    *peers: str,
    seconds: float = 0.3,
    rounds: int = 15,
    parts: tuple[str, ...] = (),
    soaks: bool = False,
) -> Iterator[Given]:
    """Parses the command line and installs the peers, which takes minutes the first time.

    Args:
        description: the script's docstring.
        peers: peers of the comparison.
        seconds: default duration of a round.
        rounds: default number.
        parts: parts that may be measured alone.
        soaks: True if it has a soak.
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seconds", type=float, default=seconds, help="of one round, about")
    add_scratch(parser)
    parser.add_argument("--no-peers", action="store_true", help="only our side")
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, help="parts; the rest is not kept")
    if soaks:
        parser.add_argument("--soak", type=float, metavar="MINUTES", help="only that, and kept")
        parser.add_argument("--clients", type=int, default=256, help="of the soak; default: 256")
    given = parser.parse_args()
    only = getattr(given, "only", None)
    # On SIGTERM, exit handlers end all started processes.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="sl-bench-") as folder:
        found = Given(given.rounds, given.seconds, Path(folder))
        found.parts = tuple(only or parts)
        if soaks:
            found.soak, found.clients = given.soak, given.clients
        for peer in () if given.no_peers else peers:
            try:
                python = install(peer, given.scratch)
                found.versions |= versions(python)
                found.pythons[peer] = python
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                found.left_out[peer] = str(error)
                print(f"{peer} is left out: {error}", file=sys.stderr)
        yield found
