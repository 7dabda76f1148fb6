"""Admits other machines to a run or a tuning: exchanges a token for names, addresses, config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from session.config import Config
from session.config.named_code import split_place
from session.errors import ConfigError, UsageError
from session.folder import RunFolder
from session.json_file import ANY
from session.line_limit import LineLimit
from session.process.clock import Clock
from session.process.component import SILENT_SECONDS, is_client
from session.wire import Wire
from session.wire.one_way_sockets import Socket
from session.wire.requests import Request
from session.wire.roles import GUEST, WATCHER, Grant
from session.wire.schema import (
    LARGE_HEADER_BYTES,
    Bytes,
    Count,
    Kinds,
    ListOf,
    MapOf,
    Name,
    OneOf,
    Optional,
    Plain,
    Schema,
    Text,
    Type,
)
from session.wire.security import allow, disallow
from surreal_like.addons.join.tokens import (
    AGAIN,
    AGENT,
    WORKER,
    Admissions,
    JoinedMachine,
    NotAdmittedError,
    TokenFolder,
)
from surreal_like.coordinator.stop_rule import Verdict
from surreal_like.ps.parameter_server import AdmissionService

ENDPOINT = "ps.join"
TUNE_ENDPOINT = "tune.join"
AGENTS_LIMIT = 1000
_CLIENTS_LIMIT = 50


def _is_script(value: Any) -> bool:
    return type(value) is str and is_client(value)


REQUESTS: Kinds = {
    "join": Schema(
        {
            "secret": Bytes(64),
            # Without `agents` only scripts are admitted, or one that looks whether the run goes on.
            "agents": Optional(Count(1, AGENTS_LIMIT)),
            # Names for the metrics and logs of scripts.
            "clients": Optional(ListOf(Type("the name of a script", _is_script), _CLIENTS_LIMIT)),
            "algorithm_sha256": Optional(Text(64)),
        },
        any_run=True,
    )
}
ANSWERS: Kinds = {
    "joined": Schema(
        {
            "names": ListOf(Name(), AGENTS_LIMIT),
            # From the run that a user has chosen to join, which has proved its key.
            "config": MapOf(Text(), Plain(ANY, 1 << 16), 1000),
            "addresses": MapOf(Text(200), Text(), 100_000),
            # A tuning wants slots for trials, and names one worker; a run wants agents.
            "wants": Optional(OneOf("agents", "slots")),
        },
        any_run=True,
        header_bytes=LARGE_HEADER_BYTES,
    )
}
_REQUESTS_PER_TICK = 4


def _grant_of(*records: JoinedMachine) -> Grant:
    """Returns the rights of a machine; without agents and scripts it may only watch."""
    names = [name for each in records for name in (*each.names, *each.clients)]
    return Grant(GUEST if names else WATCHER, tuple(dict.fromkeys(names)))


class Host(Protocol):
    """The side that machines join: the context of a parameter server, or a tuning."""

    wire: Wire
    folder: RunFolder | None
    # The resolved experiment, or the tune file.
    config: Config
    clock: Clock

    @property
    def run_over(self) -> bool:
        """True if no machine can join any more."""
        ...

    def event(self, kind: str, detail: str = "", **fields: object) -> None:
        """Records an event."""
        ...


class JoinServer(AdmissionService):
    """Replies to ``join`` and nothing else; any machine with the run's public key may send it.

    Args:
        context: context of the parameter server, or a tuning.
        endpoint: endpoint of the requests.

    Raises:
        UsageError: the run has no keys, or its folder is not on this machine.
    """

    def __init__(self, context: Host, endpoint: str = ENDPOINT) -> None:
        keys = context.wire.security.folder
        if keys is None or context.folder is None:
            raise UsageError(f"{endpoint} needs the run folder with its keys: give --folder")
        self._context, self._tuning = context, endpoint == TUNE_ENDPOINT
        self._keys = keys
        self._tokens = TokenFolder(keys)
        self._lines = LineLimit(context.clock.now)
        # Key of a machine -> time of its newest request; those of an earlier process count as now.
        self._requested_at: dict[str, float] = {}
        self._began = context.clock.now()
        self._requests = context.wire.router(endpoint, REQUESTS, any_key=True)

    def on_request(self, key: str) -> None:
        """Notes that a machine is there.

        Args:
            key: key that has proved a request to the run.
        """
        self._requested_at[key] = self._context.clock.now()

    def wait_on(self) -> list[Socket]:
        """Returns the socket of the requests."""
        return [self._requests]

    def tick(self) -> bool:
        """Replies to requests to join."""
        for answered in range(_REQUESTS_PER_TICK):
            request = self._requests.receive()
            if request is None:
                return answered > 0
            try:
                self._requests.reply(request, "joined", self._admit(request))
            except NotAdmittedError as refusal:
                self._refuse(request, str(refusal), stranger=not refusal.for_now)
            except ConfigError as error:
                # Names of another machine might be given again.
                self._refuse(request, f"the tokens of the run cannot be read: {error}")
            except OSError as error:
                self._refuse(request, f"'join' failed: {error!r}")
        return True

    def _refuse(self, request: Request, reason: str, *, stranger: bool = True) -> None:
        # Any key may ask, so all refused machines are one sender.
        more = self._lines.admit("", reason)
        if more is not None:
            self._context.event("refused", f"{self._requests.endpoint}: {reason}{more}")
        self._requests.refuse(request, reason, stranger=stranger)

    def _admit(self, request: Request) -> dict[str, Any]:
        fields = request.message.fields
        # Of a tuning a machine is one worker, with any number of slots.
        agents = min(fields.get("agents", 0), 1) if self._tuning else fields.get("agents", 0)
        machine = self._redeem(request.key, fields, agents)
        names = machine.names[:agents]
        joined = ", ".join((*names, *machine.clients)) or "no agent"
        more = self._lines.admit(machine.key)
        if more is not None:
            self._context.event("joined", f"a machine with {joined}{more}", key=machine.key)
        # A machine gets only the addresses of endpoints that admit it.
        book, grant = self._context.wire.addresses, _grant_of(machine)
        return {
            "names": list(names),
            "config": self._context.config.to_dict(),
            "addresses": {
                name: address.connect for name, address in book.items() if grant.enters(name)
            },
            "wants": "slots" if self._tuning else "agents",
        }

    def _redeem(self, key: str, fields: Mapping[str, Any], agents: int) -> JoinedMachine:
        """Exchanges a token for names; a machine that joins again has its earlier names."""
        clients = fields.get("clients", ())
        token = self._tokens.find(fields["secret"])
        if token is None:
            raise NotAdmittedError(f"wrong token: this run has given no such token; {AGAIN}")
        if not key:
            raise NotAdmittedError("a machine without a key cannot join")
        admissions = Admissions.load(token)
        known, elsewhere = admissions.machine(key), self._tokens.records(key, token)
        if (known or elsewhere) and self._context.wire.security.grant(key.encode()) is None:
            raise NotAdmittedError("the key of this machine has been taken away from the run")
        self._refuse_over()
        if agents:
            self._check_algorithm(fields.get("algorithm_sha256"))
        machine = known or JoinedMachine(key)
        if known is None or known.lacks(agents, clients):
            machine = self._give_more(token, admissions, machine, agents, clients)
        self.on_request(key)
        return machine

    def _give_more(
        self,
        token: Path,
        admissions: Admissions,
        machine: JoinedMachine,
        agents: int,
        clients: Sequence[str],
    ) -> JoinedMachine:
        """Gives a machine what it lacks; nothing is written before all checks have passed."""
        time, named = self._context.clock.time(), machine.named or bool(agents or clients)
        gone = admissions.make_room(machine, time, self._is_silent, named=named)
        if gone is not None:
            machine, admissions = replace(machine, names=gone.names), admissions.without(gone.key)
        machine = self._tokens.name(machine, agents, WORKER if self._tuning else AGENT)
        machine = self._add_clients(machine, clients, gone)
        if gone is not None:
            self._grant(gone.key, self._tokens.records(gone.key, token))
        self._grant(machine.key, [*self._tokens.records(machine.key, token), machine])
        self._tokens.write(token, admissions.with_machine(machine))
        self._forget_silent()
        return machine

    def _grant(self, key: str, records: Sequence[JoinedMachine]) -> None:
        """Writes the rights of a key: all that it has by one token or several, or none."""
        if records:
            allow(self._keys, key, _grant_of(*records))
        else:
            disallow(self._keys, key)

    def _is_silent(self, key: str) -> bool:
        requested_at = self._requested_at.get(key, self._began)
        return self._context.clock.now() - requested_at > SILENT_SECONDS

    def _forget_silent(self) -> None:
        """Removes the times of silent machines; without one a machine is as silent as the run."""
        silent = [key for key in self._requested_at if self._is_silent(key)]
        for key in silent:
            del self._requested_at[key]

    def _refuse_over(self) -> None:
        """Refuses a machine once the run has ended; one that goes on later has a place then."""
        if not self._context.run_over:
            return
        folder = self._context.folder
        end = Verdict.of_result(folder.read_result() if folder else None)
        raise NotAdmittedError("the run is over", for_now=end.resumable)

    def _add_clients(
        self, machine: JoinedMachine, wanted: Sequence[str], gone: JoinedMachine | None
    ) -> JoinedMachine:
        """Returns the machine with additional names for its scripts."""
        keys = {machine.key} if gone is None else {machine.key, gone.key}
        taken = self._tokens.name_in_use(wanted, keys)
        if taken is not None:
            raise NotAdmittedError(f"another machine reports as '{taken}': choose another name")
        clients = tuple(dict.fromkeys((*machine.clients, *wanted)))
        if len(clients) > _CLIENTS_LIMIT:
            raise NotAdmittedError(f"a machine has at most {_CLIENTS_LIMIT} names of scripts")
        return replace(machine, clients=clients)

    def _check_algorithm(self, theirs: object) -> None:
        """Checks that both machines have the same file: no code is sent over the network."""
        recorded = self._context.config.get("recorded") or {}
        ours = recorded.get("algorithm_sha256")
        if ours is None or theirs == ours:
            return
        file = split_place(str(self._context.config.algorithm))[0]
        if theirs is None:
            raise NotAdmittedError(
                f"this run's algorithm is the file {file} (SHA-256 {ours}): copy it to the joining "
                "machine and give --algorithm FILE"
            )
        raise NotAdmittedError(
            f"--algorithm has SHA-256 {theirs}, the run's {file} has {ours}: they must be the same"
        )
