"""Checkpoint that is served: reads its parameters, and notices a newer one of the same kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from session.checkpoint import read_state
from session.errors import SurrealError
from session.folder import RunFolder
from surreal_like.data.parameters import Parameters
from surreal_like.experiment.checkpoints import checkpoints_named, whole_checkpoint
from surreal_like.learner.saver import PARAMETERS
from surreal_like.network.files import load_parameters
from surreal_like.network.flat import Modules, manifest_of, named_tensors, read_flat

# Name and time of change [ns] of a checkpoint; another one means that there is something new.
_Mark = tuple[str, int]


class ServedCheckpoint:
    """Reads the parameters of a run's checkpoint.

    Args:
        run: its folder.
        kind: ``best``, ``latest`` or the iteration of a checkpoint.
        modules: of the run's agent, as a place to read into.

    Attributes:
        path: folder of the checkpoint that was read last.
    """

    def __init__(self, run: RunFolder, kind: str, modules: Modules) -> None:
        self._run, self._kind, self._modules = run, kind, modules
        self._seen: _Mark | None = None
        self.path = whole_checkpoint(run, kind)

    def read(self) -> Parameters:
        """Returns the parameters of the newest intact checkpoint.

        Raises:
            UsageError: the run has no such checkpoint.
            CheckpointError: it is damaged, or is not of this run's network.
        """
        self.path = whole_checkpoint(self._run, self._kind)
        self._seen = self._mark()
        return self._read(self.path)

    def read_newer(self, warn: Callable[[str], object]) -> Parameters | None:
        """Returns the parameters of a newer checkpoint; None if there is none.

        Args:
            warn: called once for each checkpoint that is damaged, and left out.
        """
        try:
            mark = self._mark()
            if mark is None or mark == self._seen:
                return None
            self._seen = mark
            path = checkpoints_named(self._run, self._kind)[0]
            found = self._read(path)
        except (SurrealError, OSError) as error:
            warn(f"a newer checkpoint is left out: {error}")
            return None
        self.path = path
        return found

    def _mark(self) -> _Mark | None:
        """Returns what identifies the newest candidate, without reading it."""
        for path in checkpoints_named(self._run, self._kind)[:1]:
            try:
                return path.name, (path / "state.json").stat().st_mtime_ns
            except FileNotFoundError:
                # It is being replaced.
                return None
        return None

    def _read(self, path: Path) -> Parameters:
        state = read_state(path)
        load_parameters(self._modules, path / PARAMETERS)
        return Parameters(
            read_flat(self._modules),
            manifest_of(named_tensors(self._modules)),
            int(state["version"]),
            0,
            int(state["iteration"]),
            {"env_steps": int(state["env_steps"])},
        )
