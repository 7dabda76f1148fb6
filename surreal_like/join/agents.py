"""Joins a run of another machine with agents; they work until either side stops, and leave."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from session.client import open_client
from session.config import Config
from session.config.named_code import in_snapshot
from session.config.sections import SECTIONS
from session.errors import RunError, UsageError
from session.folder import RunFolder
from session.process.component import Topology
from session.wire import AddressBook, Message
from session.wire.requests import Call
from surreal_like.experiment.code import own_file
from surreal_like.experiment.topology import make_topology
from surreal_like.join.client import Admission, Invitation, request_admission
from surreal_like.join.server import ENDPOINT
from surreal_like.join.tokens import make_token
from surreal_like.ps.schemas import ANSWERS
from surreal_like.run.observer import Interrupts
from surreal_like.run.start import Launched, LocalStarter

_POLL_SECONDS = 0.1
_ASK_SECONDS = 1.0
_INTERRUPTED = 130


def join_line(folder: RunFolder) -> str | None:
    """Returns the command that joins agents of another machine to a run, with a new token.

    Returns None if no machine can join: the run was launched without ``--host``, or without keys.

    Raises:
        UsageError: the run's keys cannot be written to.
    """
    if not folder.addresses.is_file() or not folder.keys.is_dir():
        return None
    book = AddressBook.load(folder.addresses)
    if ENDPOINT not in book:
        return None
    address = book[ENDPOINT].connect.removeprefix("tcp://")
    return f"surreal-like join {address} --token {make_token(folder.keys)}"


def join(invitation: Invitation, report: Callable[[str], object] = lambda line: None) -> int:
    """Runs agents for a run of another machine, until it is over or they have to leave.

    Args:
        invitation: address, token and number of agents.
        report: called with each line of progress.

    Returns the exit code: 0 the run is over, or SIGTERM has asked to leave; 130 interrupted here.

    Raises:
        UsageError: the invitation is wrong, or the address does not answer.
        AdmissionError: the run rejects this machine.
        MissingExtra: the run's environment is not installed here.
        RunError: the agents failed too often, or the connection to the run was lost.
    """
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        admission = request_admission(invitation)
        config, names = admission.config, ", ".join(admission.names)
        starter = LocalStarter(config.algorithm)
        stack.callback(starter.close)
        starter.resolve(_experiment(config, admission.folder))
        topology = make_topology(config)
        agents = Topology(map(topology.component, admission.names), outside=admission.addresses)
        interrupts.only_count()
        launched = starter.launch(config, agents, admission.folder)
        report(f"joined {invitation.address} with {names}; Ctrl-C to leave")
        watch = stack.enter_context(RunWatch(admission))
        code = _Stay(launched, watch, interrupts, report).until_the_end()
    if code == 0 and invitation.folder is None:
        shutil.rmtree(admission.folder.path, ignore_errors=True)
    return code


def _experiment(config: Config, folder: RunFolder) -> Config:
    """Returns the experiment as a user would give it; resolving it proves that all is installed."""
    experiment = Config({key: config[key] for key in ("algorithm", *SECTIONS)}).copy()
    # Only the learner runs it, and its file is not here.
    experiment.learner_config.execution_plan = None
    file = own_file(config)
    if file is not None:
        snapshot = folder.code / file.name
        if not snapshot.is_file():
            raise UsageError(f"the run's algorithm is the file {file}: give --algorithm FILE")
        experiment.algorithm = in_snapshot(config.algorithm, folder)
    return experiment


class RunWatch:
    """Polls the run once a second for its end.

    Args:
        admission: admission to the run.
    """

    def __init__(self, admission: Admission) -> None:
        self.over = False
        self.timeout_seconds: float = admission.config.session_config.heartbeat.timeout
        self._last_answer_at = time.monotonic()
        self._wire = open_client(admission.folder, "join")
        self._requests = self._wire.dealer("ps.requests", ANSWERS)
        make = partial(Message, "info", {"policy": "default"})
        self._info = Call(make, again_seconds=_ASK_SECONDS)

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last answer of the run."""
        return time.monotonic() - self._last_answer_at

    @property
    def lost(self) -> bool:
        """True if the run has not answered for longer than the heartbeat timeout."""
        return not self.over and self.silent_seconds > self.timeout_seconds

    @property
    def silent(self) -> bool:
        """True after half of that timeout: by then the agents have noticed the silence."""
        return not self.over and self.silent_seconds > self.timeout_seconds / 2

    def tick(self) -> list[str]:
        """Sends a request if one is due, and reads the answers; returns the connection's messages.

        Raises:
            AdmissionError: the run has revoked this machine's admission.
        """
        now = time.monotonic()
        if (answer := self._requests.ask(self._info, now)) is not None:
            self._last_answer_at = now
            self.over |= answer.kind == "info" and answer.fields["info"]["final"]
        return [] if self.over else self._wire.check()

    def __enter__(self) -> RunWatch:
        return self

    def __exit__(self, *error: object) -> None:
        self._wire.close(0.0)


class _Stay:
    """Runs the agents of this machine until the run ends or they leave.

    Args:
        launched: the agents.
        watch: watch of the run.
        interrupts: interrupts of this process.
        report: called with each line of progress.
    """

    def __init__(
        self,
        launched: Launched,
        watch: RunWatch,
        interrupts: Interrupts,
        report: Callable[[str], object],
    ) -> None:
        self._launched = launched
        self._watch = watch
        self._interrupts = interrupts
        self._report = report
        self._handled = 0
        self._lost = False

    def until_the_end(self) -> int:
        """Waits until no agent is left; returns the exit code."""
        launched = self._launched
        while (outcome := launched.outcome) is None:
            for each in launched.poll(_POLL_SECONDS):
                if each.kind in ("lost", "restart", "failed"):
                    self._report(f"{each.component} {each.kind}: {each.detail}".rstrip(": "))
            for line in self._watch.tick():
                self._report(line)
            self._leave_if_stopped()
        failed = [name for name, end in launched.components().items() if end["exit_code"] != 0]
        if self._handled:
            self._report(
                "left the run" if not failed else f"left; ended at once: {', '.join(failed)}"
            )
            return 0 if self._interrupts.terminated and not failed else _INTERRUPTED
        if self._lost or self._watch.silent:
            watch = self._watch
            seconds = watch.timeout_seconds if self._lost else watch.silent_seconds
            raise RunError(
                f"no message of the run came for {seconds:.0f} s: its machine "
                "or the network is gone; the agents here have ended"
            )
        if failed:
            raise RunError(outcome.reason)
        self._report("the run is over; its agents here have left")
        return 0

    def _leave_if_stopped(self) -> None:
        if self._interrupts.count > self._handled:
            self._handled += 1
            if self._handled == 1:
                self._report("leaving; Ctrl-C again ends everything at once")
                self._launched.stop(interrupted=True, reason="interrupted")
            else:
                self._launched.kill()
        elif self._watch.lost and not self._lost:
            self._lost = True
            self._launched.stop(interrupted=True, reason="the run is gone")


def further_line(path: Path) -> str:
    """Returns the command with a further token, for a run in progress.

    Raises:
        UsageError: no machine can join that run.
    """
    folder = RunFolder(path)
    line = join_line(folder) if not folder.over else None
    if line is None:
        why = "it is over" if folder.over else "it was launched without --host, or with --insecure"
        raise UsageError(f"no machine can join run {folder}: {why}")
    return line
