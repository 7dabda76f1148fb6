"""Joins a run of another machine with agents; they work until either side stops, and leave."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from session.addons.engines.machines import GIVEN_UP
from session.addons.hooks import WORK
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.config.merge import leaves
from session.config.named_code import in_snapshot
from session.config.sections import MAPPINGS
from session.errors import START_AGAIN, RunError, UsageError
from session.folder import RunFolder
from session.process.component import Topology
from session.process.entry import Lifeline
from session.process.heartbeat import read_beats
from session.run_connection import Client, open_client
from session.show.text import duration
from session.wire import AddressBook, Message
from session.wire.requests import Call
from session.wire.security import Security
from session.wire.socket_state import poll
from surreal_like.addons.join.admission_client import (
    Admission,
    Invitation,
    NotNowError,
    in_use_text,
    join_endpoint,
    remove_key,
    request_admission,
)
from surreal_like.addons.join.tokens import make_token
from surreal_like.data.policy_names import learning_policies
from surreal_like.experiment.topology import make_topology
from surreal_like.experiment.user_code import own_file
from surreal_like.ps.schemas import ANSWERS
from surreal_like.run.folder import tuned
from surreal_like.run.observer import Interrupts
from surreal_like.run.start import Launched, LocalStarter

_POLL_SECONDS = 0.1
_ASK_SECONDS = 1.0
# The parameter server answers for 2 s after the run.
_LAST_WORD_SECONDS = 2.0
# Between two tries to join.
_AGAIN_SECONDS = 2.0
INTERRUPTED = 130
# A night and a morning: users who resume a run by hand come to it.
GIVE_UP_SECONDS = 12 * 3600.0


def join_line(folder: RunFolder, uses: int = 1, valid_seconds: float | None = None) -> str | None:
    """Returns the command that joins agents of other machines to a run, with a new token.

    Returns None if no machine can join: the run or tuning was started without ``--host``, or keys.

    Args:
        folder: folder of the run.
        uses: number of machines.
        valid_seconds: time in which the token admits further machines [s]; None: no limit.

    Raises:
        UsageError: the run's keys cannot be written to, or the number is wrong.
    """
    if not folder.addresses.is_file() or not folder.keys.is_dir():
        return None
    endpoint = join_endpoint(book := AddressBook.load(folder.addresses))
    if endpoint is None:
        return None
    address = book[endpoint].connect.removeprefix("tcp://")
    return f"surreal-like join {address} --token {make_token(folder.keys, uses, valid_seconds)}"


class LostRunError(RunError):
    """No message of the run has come for so long that it is lost."""


class GivenUpError(RunError):
    """The run has not come, or not come back, for so long that nothing waits for it any more."""

    exit_code = GIVEN_UP


def join(
    invitation: Invitation,
    report: Callable[[str], object] = lambda line: None,
    *,
    keep_trying: bool = False,
    give_up_seconds: float = GIVE_UP_SECONDS,
    slots: int = 0,
) -> int:
    """Works for a run or a tuning of another machine, until it is over or this one has to leave.

    For a run it runs agents, for a tuning trials.

    Args:
        invitation: address, token and number of agents.
        report: called with each line of progress.
        keep_trying: wait for a run that does not answer or has no place yet, and go back to one
            that was lost or had to leave its machine, once it is resumed.
        give_up_seconds: longest such wait [s].
        slots: number of trials of a tuning that work here at the same time; 0: as many as fit.

    Returns the exit code: 0 the run is over, or SIGTERM has asked to leave; 130 interrupted here.

    Raises:
        UsageError: the invitation is wrong, or the address does not answer.
        AdmissionError: the run rejects this machine.
        MissingExtra: the run's environment is not installed here.
        RunError: the agents failed too often, or the connection to the run was lost.
        GivenUpError: it was not there for too long.
    """
    once = partial(_join_once, invitation, slots, report)
    return try_again(once, report, give_up_seconds if keep_trying else 0.0)


def try_again(
    once: Callable[[Interrupts], int | None],
    report: Callable[[str], object],
    give_up_seconds: float = GIVE_UP_SECONDS,
) -> int:
    """Calls a function until it returns an exit code.

    Args:
        once: the function; returns None if the run goes on later.
        report: called with each reason to wait.
        give_up_seconds: longest time without the run [s]; 0: the function is called only once.

    Raises:
        GivenUpError: the run was not there for so long.
    """
    said, lifeline, there_at = "", Lifeline(), time.monotonic()
    with Interrupts() as interrupts:
        while True:
            try:
                interrupts.raise_again()
                if said:
                    time.sleep(_AGAIN_SECONDS)
                lifeline.pass_on(signal.SIGTERM)
                code = once(interrupts)
                if code is not None or not give_up_seconds:
                    return code or 0
                reason, there_at = "it had to leave its machine", time.monotonic()
            except (NotNowError, LostRunError) as error:
                if not give_up_seconds:
                    raise
                reason = str(error)
                if isinstance(error, LostRunError):
                    there_at = time.monotonic()
            except KeyboardInterrupt:
                if not interrupts.terminated:
                    raise
                return 0
            if time.monotonic() - there_at >= give_up_seconds:
                waited = duration(give_up_seconds)
                raise GivenUpError(f"gave up: the run was not there for {waited}: {reason}")
            if reason != said:
                report(f"waiting for the run: {reason}")
                said = reason


def _join_once(
    invitation: Invitation, slots: int, report: Callable[[str], object], interrupts: Interrupts
) -> int | None:
    """Joins the run and returns as :func:`join`; None if it goes on later."""
    admission = request_admission(invitation)
    if admission.wants == "slots":
        if invitation.agents > 1:
            raise UsageError(
                f"{invitation.address} is a tuning: give --slots N in place of --agents"
            )
        work = WORK.require(f"{invitation.address} is a tuning, whose add-on is not here")
        with refuse_second(admission.folder), RunWatch(admission) as watch:
            code = work(admission, slots, report, interrupts, watch)
        _tidy(invitation, admission, watch)
        return code
    if slots:
        raise UsageError(f"{invitation.address} is a run: give --agents N in place of --slots")
    with ExitStack() as stack:
        config, names = admission.config, ", ".join(admission.names)
        starter = LocalStarter(config.algorithm)
        stack.callback(starter.close)
        starter.resolve(experiment_of(config, admission.folder))
        topology = make_topology(config)
        agents = Topology(map(topology.component, admission.names), outside=admission.addresses)
        interrupts.only_count()
        with refuse_second(admission.folder):
            launched = starter.launch(config, agents, admission.folder)
        report(f"joined {invitation.address} with {names}; Ctrl-C to leave")
        watch = stack.enter_context(RunWatch(admission))
        alive = admission.folder.alive
        code = _Stay(launched, watch, interrupts, report, alive).until_the_end()
    if code == 0 and watch.resumable and not interrupts.count:
        return None
    _tidy(invitation, admission, watch)
    return code


@contextmanager
def refuse_second(folder: RunFolder) -> Iterator[None]:
    """Says of a folder that another ``join`` has taken meanwhile what to do, without its end.

    Raises:
        UsageError: agents of another process run in the folder.
    """
    try:
        yield
    except UsageError:
        if folder.owner in (None, os.getpid()):
            raise
        raise UsageError(in_use_text(folder)) from None


def _tidy(invitation: Invitation, admission: Admission, watch: RunWatch) -> None:
    """Removes the secret key of this machine, and its temporary folder, once the run is over.

    Until then it needs the key, to come back under its names.
    """
    if not watch.over or watch.resumable:
        return
    remove_key(admission.folder.path)
    if invitation.folder is None:
        shutil.rmtree(admission.folder.path, ignore_errors=True)


def experiment_of(config: Config, folder: RunFolder) -> Config:
    """Returns the experiment as a user would give it; resolving it proves that all is installed."""
    given = {key: config.get(key) or {} for key in MAPPINGS}
    experiment = Config({"algorithm": config.algorithm, **given}).copy()
    # Only the learner runs a plan, and its file is not here.
    for each in (experiment, *experiment.policies.values()):
        if "learner_config" in each:
            each.learner_config.execution_plan = None
    file = own_file(config)
    if file is not None:
        snapshot = folder.code / file.name
        if not snapshot.is_file():
            raise UsageError(f"the run's algorithm is the file {file}: give --algorithm FILE")
        experiment.algorithm = in_snapshot(config.algorithm, folder)
    return experiment


class RunWatch:
    """Polls the run, or tuning, once a second for its end.

    Args:
        admission: admission to the run.

    Attributes:
        over: True once it has ended.
        resumable: True if it goes on later.
        wanted_slots: slots that a tuning wants from machines; None: it is a run.
        load: newest numbers for advice on agents, as ``LOAD`` in ``ps/schemas.py``; empty: none.
    """

    def __init__(self, admission: Admission) -> None:
        self.over = False
        self.resumable = False
        self.load: Mapping[str, float] = {}
        self.wanted_slots: int | None = None
        given = {**leaves(BASE_CONFIG), **leaves(admission.config)}
        self.timeout_seconds: float = given["session_config.heartbeat.timeout"]
        # Time of the first question since the newest answer; None: nothing was asked since.
        self._asked_at: float | None = None
        if admission.wants == "slots":
            security = Security.load(admission.folder.keys)
            self._wire = Client(admission.addresses, "join", security=security)
            self._requests = self._wire.dealer("tune.workers", ANSWERS)
        else:
            self._wire = open_client(admission.folder, "join")
            self._requests = self._wire.dealer("ps.requests", ANSWERS)
        policy = learning_policies(admission.config)[0]
        make = partial(Message, "info", {"policy": policy})
        self._info = Call(make, again_seconds=_ASK_SECONDS)

    @property
    def silent_seconds(self) -> float:
        """Seconds since the first question that has no answer; a slow start here is no silence."""
        return 0.0 if self._asked_at is None else time.monotonic() - self._asked_at

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
            self._asked_at = None
            info = answer.fields["info"] if answer.kind == "info" else {"final": False}
            self.over |= info["final"]
            self.load = answer.fields.get("load", self.load)
            self.wanted_slots = answer.fields.get("wanted_slots")
            self.resumable |= info.get("resumable", False)
        elif self._asked_at is None:
            self._asked_at = now
        return [] if self.over else self._wire.check()

    def loss(self) -> LostRunError:
        """Returns the error for a run that is silent."""
        seconds = min(self.silent_seconds, self.timeout_seconds)
        return LostRunError(
            f"no message of the run came for {seconds:.0f} s: its machine "
            "or the network is gone; what ran for it here has ended"
        )

    def look_back(self) -> None:
        """Waits for the answer that the run is over, which its agents know already."""
        deadline = time.monotonic() + _LAST_WORD_SECONDS
        self._info.again_seconds = _POLL_SECONDS
        while not self.over and time.monotonic() < deadline:
            self.tick()
            poll([self._requests], _POLL_SECONDS)

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
        alive: folder of the agents' heartbeats.
    """

    def __init__(
        self,
        launched: Launched,
        watch: RunWatch,
        interrupts: Interrupts,
        report: Callable[[str], object],
        alive: Path,
    ) -> None:
        self._launched = launched
        self._watch = watch
        self._interrupts = interrupts
        self._report = report
        self._alive = alive
        self._handled = 0
        self._loss: LostRunError | None = None
        self._lifeline = Lifeline()

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
        ends = {name: end["exit_code"] for name, end in launched.components().items()}
        # A cluster may send the notice to the agents, too.
        failed = [name for name, code in ends.items() if code not in (0, START_AGAIN)]
        if self._handled:
            left = "left the run" if not failed else f"left; ended at once: {', '.join(failed)}"
            self._report(left + self._describe_unacked())
            return 0 if self._interrupts.terminated and not failed else INTERRUPTED
        if self._loss is not None or self._watch.silent:
            raise self._loss or self._watch.loss()
        if failed:
            raise RunError(outcome.reason)
        self._watch.look_back()
        end = "goes on later" if self._watch.resumable else "is over"
        self._report(f"the run {end}; its agents here have left{self._describe_unacked()}")
        return 0

    def _describe_unacked(self) -> str:
        """Returns a text with the number of rows that replay has not taken; empty for none."""
        beats = read_beats(self._alive)
        names = self._launched.components().keys() & beats.keys()
        rows = round(sum(beats[name].status.get("unacked_rows", 0.0) for name in names))
        return f"; {rows:,} rows were not acknowledged by replay, and are lost" if rows else ""

    def _leave_if_stopped(self) -> None:
        self._lifeline.pass_on(signal.SIGTERM)
        if self._interrupts.count > self._handled:
            self._handled += 1
            if self._handled == 1:
                self._report("leaving; Ctrl-C again ends everything at once")
                self._launched.stop(interrupted=True, reason="interrupted")
            else:
                self._launched.kill()
        elif self._watch.lost and self._loss is None:
            # A late answer may come while the agents leave.
            self._loss = self._watch.loss()
            self._launched.stop(interrupted=True, reason="the run is gone")


def further_line(path: Path, uses: int = 1, valid_seconds: float | None = None) -> str:
    """Returns the command with a further token, for a run in progress.

    Args:
        path: folder of the run.
        uses: number of machines.
        valid_seconds: time in which the token admits further machines [s]; None: no limit.

    Raises:
        UsageError: no machine can join that run.
    """
    folder = RunFolder(path)
    over = folder.over and not tuned(folder.path)
    line = join_line(folder, uses, valid_seconds) if not over else None
    if line is None:
        why = "it is over" if over else "it was launched without --host, or with --insecure"
        raise UsageError(f"no machine can join run {folder}: {why}")
    return line
