"""Observers of a running run, to show its progress: subclass RunObserver."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from session.config import Config
from session.folder import RunFolder
from session.launchers.instruction import Event

# Reason of a run that Ctrl-C ended.
INTERRUPTED = "interrupted"

Watch = TypeVar("Watch")


class RunObserver:
    """Receives reports about a running run; override methods to show them."""

    def prepare(self, path: Path) -> None:
        """Called before the experiment is resolved, which takes seconds; with the run folder."""

    def begin(self, folder: RunFolder, config: Config) -> None:
        """Called before the components are started."""

    def on_message(self, text: str) -> None:
        """Receives a message of one line."""

    def on_event(self, event: Event) -> None:
        """Receives an event of the launcher, such as a restart or a lost component."""

    def on_components(self, components: Mapping[str, Mapping[str, Any]]) -> None:
        """Receives the components; called often, so it must be fast.

        Args:
            components: name -> ``restarts``, ``exit_code``, ``alive_seconds``.
        """

    def end(self) -> None:
        """Called after the last report."""


def guarded(watch: Watch, report: Callable[[Watch], object], otherwise: type[Watch]) -> Watch:
    """Passes a report to an observer; returns the observer for later reports.

    One that raises is replaced by an object of ``otherwise``, with a RuntimeWarning.
    """
    try:
        report(watch)
    except Exception as error:  # noqa: BLE001 - an observer must not end a run
        warnings.warn(
            f"{type(watch).__name__} has failed, so the run goes on unseen: {error!r}",
            RuntimeWarning,
            stacklevel=2,
        )
        return otherwise()
    return watch


def show(
    watch: RunObserver, events: Iterable[Event], components: Mapping[str, Mapping[str, Any]]
) -> RunObserver:
    """Passes events and components to the observer; returns the observer for later reports."""

    def report(shown: RunObserver) -> None:
        for event in events:
            shown.on_event(event)
        shown.on_components(components)

    return guarded(watch, report, RunObserver)
