"""The checkpoints of a run by name: ``best``, ``latest``, or a number."""

from __future__ import annotations

from pathlib import Path

from session.checkpoint import Checkpoints, earlier_ones, read_state
from session.errors import CheckpointError, UsageError
from session.folder import RunFolder


def whole_checkpoint(run: RunFolder, checkpoint: str | int) -> Path:
    """The folder of one of a run's checkpoints, every file of it verified.

    Args:
        run: its folder.
        checkpoint: ``best``, ``best-2`` and so on, ``latest`` (the newest that is whole), or an
            iteration of which there is a checkpoint.

    Raises:
        UsageError: there is no such checkpoint; names those that there are.
        CheckpointError: it is not whole; names the file.
    """
    numbered = list(Checkpoints(run.checkpoints / "learner").newest_first())
    best = earlier_ones(run.checkpoints / "best")
    paths = {path.name: [path] for path in reversed(numbered)}
    if numbered:
        paths["latest"] = numbered
    paths |= {path.name: [path] for path in best}
    if best:
        # The name itself is missing for a moment while a new one is put in place.
        paths.setdefault("best", best[:1])
    if str(checkpoint) not in paths:
        raise UsageError(
            f"run {run} has no checkpoint '{checkpoint}'; it has {', '.join(paths) or 'none yet'}"
        )
    return _first_whole(paths[str(checkpoint)], f"run {run} has {', '.join(paths)}")


def _first_whole(paths: list[Path], there: str) -> Path:
    first: CheckpointError | None = None
    for path in paths:
        try:
            read_state(path)
        except CheckpointError as error:
            first = first or error
        else:
            return path
    raise CheckpointError(f"{first}; {there}")
