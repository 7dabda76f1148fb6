"""Process in which the sessions of a port live: a component of a run, or ``surreal-like serve``."""

from __future__ import annotations

from typing import Protocol

from session.config import Config
from session.folder import RunFolder
from session.process.clock import Clock


class EventLog(Protocol):
    """Gets the events and warnings of sessions."""

    def event(self, kind: str, detail: str = "") -> None:
        """Records an event."""

    def warning(self, msg: object, /) -> None:
        """Records a warning."""


class Host(Protocol):
    """Process of a frontend; a :class:`~session.process.context.Context` is one."""

    @property
    def config(self) -> Config:
        """Config of the run."""

    @property
    def folder(self) -> RunFolder | None:
        """Folder of the run, which has the tokens."""

    @property
    def clock(self) -> Clock:
        """Clock for all times."""

    @property
    def log(self) -> EventLog:
        """Log for sessions."""

    @property
    def seed(self) -> int:
        """Seed from which those of episodes follow."""
