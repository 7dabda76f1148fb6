"""Part of tune.py: a tuner whose trials are stand-ins, without processes."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from session.folder import RunFolder
from session.launchers.backend import Exit
from session.run_connection import Client
from session.wire import AddressBook, Message
from session.wire.requests import Call
from session.wire.socket_state import poll
from surreal_like.addons.tuning import tuner as tuner_module
from surreal_like.addons.tuning.reporter import ANSWERS, CONTROL
from surreal_like.addons.tuning.state import Trial
from surreal_like.addons.tuning.trial import trial_name
from surreal_like.addons.tuning.tune_file import TuneFile
from surreal_like.addons.tuning.tuner import Tuner
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from surreal_like.run.observer import Interrupts, RunObserver


class StandIns:
    """Processes that do nothing; they end when they are asked to, or at once."""

    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once
        self._alive: dict[str, int] = {}
        self.ended: list[str] = []
        # Always readable.
        self._reader, writer = os.pipe()
        os.close(writer)

    def start(self, component: Any) -> None:
        self._alive[component.name] = len(self._alive) + 1
        if self._at_once:
            self.ended.append(component.name)

    def pid(self, name: str) -> int:
        return 0

    def signal(self, name: str, number: int) -> None:
        self.ended.append(name)

    def wait_on(self) -> list[int]:
        return [self._reader] if self.ended else []

    def poll(self) -> list[Exit]:
        names, self.ended = self.ended, []
        return [Exit(name, 0, "") for name in names if self._alive.pop(name, 0)]

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._reader)


class _Servers:
    """Fork servers that fork nothing."""

    def remove_sockets_at_end(self, run: object) -> None:
        pass


@contextmanager
def tuner_of(file: TuneFile, slots: int, processes: StandIns) -> Iterator[tuple[Tuner, RunFolder]]:
    """Makes a tuner of stand-ins.

    Args:
        file: of the tuning.
        slots: stand-ins that work at the same time.
        processes: the stand-ins.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name) / "tuning")
        folder.create()
        trials = [Trial(trial_name(each), {}) for each in range(file.tune.trials)]
        tuning = Tuning(trials, file.scheduler(), slots=slots)
        with patch.object(tuner_module, "Processes", lambda *given: processes):
            tuner = Tuner(file, folder, tuning, cast(Any, _Servers()), RunObserver())
        try:
            yield tuner, folder
        finally:
            tuner.close()


def seconds_until_all_ended(file: TuneFile) -> float:
    """Returns the seconds of a tuning whose stand-ins end at once, on 2 slots."""
    with tuner_of(file, 2, StandIns(at_once=True)) as (tuner, _):
        began = time.monotonic()
        tuner.run(Interrupts())
        return time.monotonic() - began


def answer_seconds(file: TuneFile) -> list[float]:
    """Lets all stand-ins report at once; returns the seconds until each has its answer."""
    number, processes = file.tune.trials, StandIns(at_once=False)
    seconds: list[float] = []

    def report(folder: RunFolder) -> None:
        book = AddressBook.load(folder.addresses)
        clients = [Client(book, trial_name(each)) for each in range(number)]
        sockets = [each.dealer(CONTROL, ANSWERS) for each in clients]
        calls = []
        for each in clients:
            fields = {"trial": each.identity.name, "incarnation": 1, "number": 1, "step": 0}
            message = Message("report", {**fields, "time": 1.0, "line": {}})
            calls.append(Call(partial(_same, message), again_seconds=60.0))
        time.sleep(1.0)
        waiting, began = set(range(number)), time.monotonic()
        while waiting:
            for place in list(waiting):
                if sockets[place].ask(calls[place], time.monotonic()) is not None:
                    waiting.discard(place)
                    seconds.append(time.monotonic() - began)
            poll([sockets[place] for place in waiting], 0.01)
        processes.ended += [each.identity.name for each in clients]
        for each in clients:
            each.close(0.0)

    with tuner_of(file, number, processes) as (tuner, folder):
        thread = threading.Thread(target=report, args=(folder,))
        thread.start()
        tuner.run(Interrupts())
        thread.join()
    return seconds


def _same(message: Message) -> Message:
    return message
