"""Snapshots of a policy that learns: files of the run, and publications for its opponents."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from session.checkpoint import read_state, save_one, set_aside
from session.errors import SurrealError
from session.newest_checkpoint import Checkpoints
from surreal_like.learner.learner import Learner
from surreal_like.learner.saver import PARAMETERS
from surreal_like.network.files import read_parameters, save_parameters
from surreal_like.network.flat import manifest_of, named_tensors, pack_tensors, weights_of

# Folder of snapshots, in that of the policy's checkpoints.
FOLDER = "league"


class League:
    """Takes a snapshot of a learner's parameters every so many iterations.

    At most ``keep`` live: the first one and the newest.

    Args:
        folder: checkpoints of the policy; ``league`` in it has a folder for each snapshot, named
            by its iteration.
        settings: ``every`` and ``keep`` of the policy that plays the snapshots.
        note: called with a line of text for each snapshot that is damaged.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], note: Callable[[str], None]
    ) -> None:
        self._folder, self._note = folder / FOLDER, note
        self._every, self._keep = int(settings["every"]), int(settings["keep"])
        self._newest = -1

    def restore(self, learner: Learner) -> None:
        """Publishes the snapshots that are stored, and takes the first one if there is none."""
        for path in Checkpoints(self._folder).newest_first():
            try:
                state = read_state(path)
                tensors = read_parameters(learner.module_dict(), path / PARAMETERS)
            except SurrealError as error:
                self._note(f"snapshot {path}: {error}; {set_aside(path)}")
                continue
            self._newest = max(self._newest, int(path.name))
            learner.link.publisher.add_snapshot(
                pack_tensors(tensors),
                manifest_of(tensors),
                iteration=int(path.name),
                env_steps=int(state["env_steps"]),
                weights=weights_of(learner.module_dict()),
            )
        self.tick(learner)

    def tick(self, learner: Learner) -> None:
        """Takes a snapshot if one is due.

        Raises:
            CheckpointError: the disk reported an error.
        """
        iteration = learner.iteration
        if self._newest >= 0 and iteration < self._newest + self._every:
            return
        self._newest = iteration
        modules, publisher = learner.module_dict(), learner.link.publisher
        state = {"iteration": iteration, "env_steps": learner.env_steps}
        save_one(
            self._folder / str(iteration),
            state,
            lambda folder: save_parameters(modules, folder / PARAMETERS),
        )
        tensors = named_tensors(modules)
        publisher.add_snapshot(
            pack_tensors(tensors),
            manifest_of(tensors),
            iteration=iteration,
            env_steps=learner.env_steps,
            weights=weights_of(modules),
        )
        self._drop(publisher.snapshots)

    def _drop(self, snapshots: dict[int, Any]) -> None:
        excess = max(0, len(snapshots) - self._keep)
        for old in sorted(snapshots)[1 : 1 + excess]:
            del snapshots[old]
            shutil.rmtree(self._folder / str(old), ignore_errors=True)
