"""A run folder with checkpoints, and what is mirrored of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from session.addons.mirror.copier import Copier, Owner
from session.addons.mirror.storage import Storage
from session.checkpoint import save_one
from session.folder import RunFolder
from session.newest_checkpoint import Checkpoints
from tests.session.made_run import made_line, made_run

OWNER = Owner("a-run", 1, 5)
# Of the folder, but never of its mirror.
PRIVATE = (
    "keys/server.secret",
    "logs/learner.log",
    "alive/learner",
    "checkpoints/learner/aside/9.1/x",
)


def make_run(path: Path) -> RunFolder:
    """A run with two checkpoints, a best one, curves, code, and what must not be copied."""
    run = made_run(path, [made_line(100)], result={"status": "running"})
    for number in (100, 200):
        save(run, number)
    save_best(run, b"best")
    (run.checkpoints / "learner" / "record.json").write_text("{}")
    for name in ("tensorboard/events.0", "code/mine.py", "events.jsonl", *PRIVATE):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"{name}\n")
    return run


def save(run: RunFolder, number: int, size: int = 40) -> None:
    """Saves a checkpoint as a learner does; the two newest stay."""
    _, learner = (Checkpoints(run.checkpoints / name) for name in ("", "learner"))
    learner.save(
        number, {"iteration": number}, lambda path: fill(path, bytes([number % 251]) * size)
    )


def save_best(run: RunFolder, content: bytes) -> None:
    """Replaces the best checkpoint."""
    save_one(run.checkpoints / "best", {"iteration": 1}, lambda path: fill(path, content))


def fill(path: Path, content: bytes) -> None:
    for name in ("params", "optimizer"):
        (path / name).write_bytes(name.encode() + content)


def make_copier(
    run: RunFolder,
    url: str,
    *,
    owner: Owner = OWNER,
    pace: Callable[[int], object] = lambda size: None,
) -> Copier:
    return Copier(run, Storage(url), owner, pace)


def contents(path: Path) -> dict[str, bytes]:
    """Name and content of every file below a folder."""
    files = [each for each in path.rglob("*") if each.is_file()]
    return {str(each.relative_to(path)): each.read_bytes() for each in files}


def shared(run: RunFolder) -> dict[str, bytes]:
    """What a mirror of the run has to hold."""
    left_out = (*PRIVATE, "addresses.json")
    return {name: each for name, each in contents(run.path).items() if name not in left_out}
