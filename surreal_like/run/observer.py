"""Observers of a running run, to show its progress: subclass RunObserver."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Self

from session.config import Config
from session.folder import RunFolder
from session.launchers.instruction import Event

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Handles both signals while it is entered, in the main thread; does nothing in other threads.

    Signals raise KeyboardInterrupt while a run is being prepared; after :meth:`only_count` they are
    counted.

    Attributes:
        count: number of signals; SIGTERM again is the same notice, as a cluster sends it to every
            process and its script passes it on.
        terminated: all of them were SIGTERM, the notice of a machine or a cluster, not of a user.
    """

    def __init__(self) -> None:
        self.count = 0
        self.terminated = False
        self._raises = True
        self._before: dict[signal.Signals, Any] = {}

    def only_count(self) -> None:
        """Stops raising: from now on a waiting loop reads :attr:`count`."""
        self._raises = False

    def raise_again(self) -> None:
        """Raises KeyboardInterrupt at each signal, as at the beginning; at once after one."""
        self._raises = True
        if self.count:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._on_signal) for each in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and self.terminated and not self._raises:
            return
        self.terminated = number == signal.SIGTERM and (self.terminated or self.count == 0)
        self.count += 1
        if self._raises:
            raise KeyboardInterrupt


# Reason of a run that Ctrl-C ended.
INTERRUPTED = "interrupted"


class RunObserver:
    """Receives reports about a running run or tuning; override methods to show them.

    One that raises is dropped with a warning, and the run goes on.
    """

    def prepare(self, path: Path) -> None:
        """Called before the experiment is resolved, which takes seconds; with the run folder."""

    def begin(self, folder: RunFolder, config: Config) -> None:
        """Called before the components are started.

        Args:
            folder: Folder of the run or tuning.
            config: The resolved experiment; of a tuning, its tune file, with the numbers of
                its trials and slots in ``tune``.
        """

    def on_message(self, text: str) -> None:
        """Receives a message of one line."""

    def on_event(self, event: Event) -> None:
        """Receives an event of the launcher, such as a restart or a lost component.

        The events of a tuning are new states of its trials, ``exploit`` and ``skipped``.
        """

    def on_components(self, components: Mapping[str, Mapping[str, Any]]) -> None:
        """Receives the components; called often, so it must be fast.

        Args:
            components: Name -> ``restarts``, ``exit_code``, ``alive_seconds``; the trials of a
                tuning have their entry of ``tuning.json``, and in ``doing`` what they wait for.
        """

    def end(self) -> None:
        """Called after the last report."""


def pass_report(watch: RunObserver, report: Callable[[RunObserver], object]) -> RunObserver:
    """Passes a report to an observer; returns the observer for later reports.

    One that raises is replaced by one that shows nothing, with a RuntimeWarning.
    """
    try:
        report(watch)
    except Exception as error:  # noqa: BLE001 - an observer must not end a run
        warnings.warn(
            f"{type(watch).__name__} has failed, so the run goes on unseen: {error!r}",
            RuntimeWarning,
            stacklevel=2,
        )
        return RunObserver()
    return watch


def show(
    watch: RunObserver, events: Iterable[Event], components: Mapping[str, Mapping[str, Any]]
) -> RunObserver:
    """Passes events and components to the observer; returns the observer for later reports."""

    def report(shown: RunObserver) -> None:
        for event in events:
            shown.on_event(event)
        shown.on_components(components)

    return pass_report(watch, report)
