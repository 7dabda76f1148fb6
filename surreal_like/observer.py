"""How a run is shown while it goes on: what shows it extends RunObserver."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from session.config import Config
from session.folder import RunFolder
from session.launchers.instruction import Event

# The reason of an end by Ctrl-C.
INTERRUPTED = "interrupted"


class RunObserver:
    """What is told of a run while it goes on; extend it to show something."""

    def prepare(self, path: Path) -> None:
        """The experiment is being resolved, for a run in this folder; that takes some seconds."""

    def begin(self, folder: RunFolder, config: Config) -> None:
        """The components are being started."""

    def note(self, text: str) -> None:
        """Something to say in one line."""

    def happened(self, happening: Event) -> None:
        """The launcher did something, or lost somebody."""

    def look(self, components: Mapping[str, Mapping[str, Any]]) -> None:
        """Called often; must not take long.

        Args:
            components: name -> ``restarts``, ``exit_code``, ``alive_seconds``.
        """

    def end(self) -> None:
        """Nothing more comes."""


def show(
    watch: RunObserver, happenings: Iterable[Event], components: Mapping[str, Mapping[str, Any]]
) -> RunObserver:
    """Tells the watch; returns who is to be told from now on."""
    try:
        for happening in happenings:
            watch.happened(happening)
        watch.look(components)
    except Exception as error:  # noqa: BLE001 - no run dies of how it is shown
        warnings.warn(
            f"{type(watch).__name__} has failed, so the run goes on unseen: {error!r}",
            RuntimeWarning,
            stacklevel=2,
        )
        return RunObserver()
    return watch
