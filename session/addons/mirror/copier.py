"""Copies a run folder to its mirror, one complete generation after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from session.addons.copies.run_files import RunFiles
from session.addons.mirror.storage import Manifest, Storage
from session.errors import CheckpointError, UsageError
from session.folder import RunFolder


@dataclass(frozen=True, slots=True)
class Owner:
    """The mirror's process, among those that may write to one place.

    Args:
        run, part, incarnation: as in :class:`Manifest`.
    """

    run: str
    part: int
    incarnation: int


class Copier:
    """Makes the mirror of one run equal to its folder.

    Args:
        run: the run folder.
        storage: the mirror.
        owner: identity of this process.
        pace: called before each block is sent, with its size; it may wait.

    Attributes:
        sent_bytes: size of all blocks sent so far.
    """

    def __init__(
        self, run: RunFolder, storage: Storage, owner: Owner, pace: Callable[[int], object]
    ) -> None:
        self.sent_bytes = 0
        self._run = run
        self._storage = storage
        self._owner = owner
        self._pace = pace
        self._files = RunFiles(run)
        self._published: Manifest | None = None
        # Blocks that are there, complete.
        self._there: set[str] = set()
        self._listed = False

    def copy(self, now: float) -> None:
        """Copies one generation, if something has changed; removes blocks of earlier ones.

        Args:
            now: wall clock [s].

        Raises:
            WireError: the mirror does not answer, or refuses; the next call goes on.
            UsageError: another run has its mirror there, or a later part of this one.
        """
        before = self._look()
        files = self._files.find(on_block=self._put)
        owner = self._owner
        manifest = Manifest(owner.run, owner.part, owner.incarnation, now, files)
        if before is None or before.files != files or before.incarnation != owner.incarnation:
            self._storage.publish(manifest)
            self._published = manifest
        self._tidy(manifest.blocks)

    def _look(self) -> Manifest | None:
        """Returns the manifest on the mirror, after a check that this process may replace it."""
        try:
            found = self._storage.read_manifest()
        except CheckpointError:
            # A reader could not use it, either.
            found = None
        owner = self._owner
        if found is not None and found.run != owner.run:
            raise UsageError(
                f"mirror {self._storage.url} is that of another run: choose another "
                "session_config.mirror, or another name for the run folder"
            )
        if found is not None and (found.part, found.incarnation) > (owner.part, owner.incarnation):
            raise UsageError(
                f"mirror {self._storage.url} belongs to a later start of this run: it goes on "
                "elsewhere"
            )
        if found is None or found != self._published:
            # At the first copy, and where the place was emptied or another process wrote to it.
            # Only blocks of a manifest count: not every file system stores one at once.
            self._there = set() if found is None else found.blocks
            self._files = RunFiles(self._run)
            self._listed = False
        return found

    def _put(self, name: str, block: bytes) -> None:
        """Sends a block that is not there yet."""
        if name not in self._there:
            self._pace(len(block))
            self._storage.put(name, block)
            self._there.add(name)
            self.sent_bytes += len(block)

    def _tidy(self, used: set[str]) -> None:
        """Removes blocks that the present generation does not use."""
        if not self._listed:
            # Once: an earlier process may have been killed before its manifest.
            self._there |= self._storage.list_blocks()
        self._storage.remove(sorted(self._there - used))
        self._there &= used
        self._listed = True
