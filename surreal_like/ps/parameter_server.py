"""Service of the parameter server: receives publications, replies to agents, keeps membership."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from session.errors import DecodeError
from session.line_limit import LineLimit
from session.process.context import Context
from session.process.service import QuietPeriod, Service
from session.wire import PROTOCOL_VERSION, Message
from session.wire.one_way_sockets import SubscriberSocket
from session.wire.requests import Request
from session.wire.roles import WATCH
from session.wire.schema import SENDERS_LIMIT
from session.wire.socket_state import Pollable
from surreal_like.data.parameters import Parameters
from surreal_like.data.policy_names import PolicyId, learning_policies
from surreal_like.data.sender import ENTRIES, Incarnations, Sender
from surreal_like.ps.schemas import PUBLICATIONS, REQUESTS

_REQUESTS_PER_TICK = 64
_PUBLICATIONS_PER_TICK = 64
_PATIENT_PEERS = 4096

_SHOWN_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class Accepted:
    """The newest process of a name, as its hello was accepted.

    Args:
        starts: number of starts under this name, including this one.
        incarnation: incarnation to use.
        asked: incarnation that its first hello asked for.
    """

    starts: int
    incarnation: int
    asked: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused hello.

    Args:
        reason: reason in one line, with the values of both sides.
        stranger: True if a later hello would be refused, too: it belongs to another run or
            protocol.
        expected: True for what happens in a run without a fault: it is not logged.
    """

    reason: str
    stranger: bool = False
    expected: bool = False


class Membership:
    """All names with their newest incarnation; after a restart it learns them from the hellos.

    Args:
        protocol: version of the wire's protocol.
        fingerprint: fingerprint of the experiment.
        spec_hash: spec hash of its observation and action specs.
    """

    def __init__(self, *, protocol: int, fingerprint: str, spec_hash: str) -> None:
        self._ours = {"protocol": protocol, "fingerprint": fingerprint, "spec_hash": spec_hash}
        self._entries: dict[str, Accepted] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def hello(self, fields: Mapping[str, Any]) -> Accepted | Refused:
        """Accepts or refuses a hello.

        Args:
            fields: ``protocol``, ``fingerprint``, ``spec_hash``, ``name``, ``incarnation``,
                ``fresh`` (True if this process was never accepted), and ``starts`` if it was; they
                match :data:`session.process.handshake.HELLO`.
        """
        name, incarnation = fields["name"], fields["incarnation"]
        for what, ours in self._ours.items():
            if fields[what] != ours:
                return Refused(_mismatch(name, what, fields[what], ours), stranger=True)
        known = self._entries.get(name)
        if not fields["fresh"]:
            return self._return(name, incarnation, fields.get("starts", 1))
        if known is None:
            entry = Accepted(1, incarnation, incarnation)
        elif known.asked == incarnation:
            # A repeated hello, perhaps on a new connection because the first was lost before the
            # reply. A further start would change the seed, and supersede the process itself.
            entry = known
        else:
            # The clock of another node may be slow: the new incarnation must be newer.
            newer = max(incarnation, known.incarnation + 1)
            entry = Accepted(known.starts + 1, newer, incarnation)
        self._entries[name] = entry
        return entry

    def _return(self, name: str, incarnation: int, starts: int) -> Accepted | Refused:
        """Accepts again a process that was accepted before and has reconnected."""
        superseded = self.superseded(name, incarnation)
        if superseded is not None:
            return Refused(superseded)
        known = self._entries.get(name)
        asked = incarnation
        if known is not None:
            starts = max(starts, known.starts)
            asked = known.asked if known.incarnation == incarnation else asked
        self._entries[name] = entry = Accepted(starts, incarnation, asked)
        return entry

    def superseded(self, name: str, incarnation: int) -> str | None:
        """Returns the reason if a newer incarnation has replaced this one, else None."""
        known = self._entries.get(name)
        if known is None or incarnation >= known.incarnation:
            return None
        return (
            f"'{name}' of incarnation {incarnation} has been replaced by incarnation "
            f"{known.incarnation}: this process must end"
        )


def _mismatch(name: str, what: str, theirs: object, ours: object) -> str:
    shown = [str(value)[:_SHOWN_CHARACTERS] for value in (theirs, ours)]
    if shown[0] == shown[1]:
        shown = [str(theirs), str(ours)]
    return (
        f"'{name}' has {what} {shown[0]}, this run has {shown[1]}: "
        "start it from the config of this run"
    )


class ParameterStore:
    """Keeps one publication per policy: the newest by ``(learner incarnation, version)``.

    A snapshot is the only publication of a policy with a name of its own. The newest publication
    of its policy lists the snapshots that live; others are dropped.
    """

    def __init__(self) -> None:
        self._newest: dict[str, Parameters] = {}

    def put(self, parameters: Parameters) -> bool:
        """Stores a publication; returns False if it is not newer than the stored one."""
        known = self._newest.get(parameters.policy)
        if known is not None and parameters.order <= known.order:
            return False
        self._newest[parameters.policy] = parameters
        self._drop_snapshots(parameters)
        return True

    def _drop_snapshots(self, parameters: Parameters) -> None:
        name_of = PolicyId(parameters.policy).snapshot
        living = set(map(name_of, parameters.info.get("snapshots", ())))
        for name in [each for each in self._newest if each.startswith(name_of(""))]:
            if name not in living:
                del self._newest[name]

    def newest(self, policy: str = "default") -> Parameters | None:
        """Returns the newest publication of a policy, None before the first."""
        return self._newest.get(policy)

    def order(self, policy: str = "default") -> tuple[int, int]:
        """Returns ``(learner incarnation, version)`` of the newest, ``(0, 0)`` before the first."""
        known = self._newest.get(policy)
        return (0, 0) if known is None else known.order


class AdmissionService(Service):
    """Admits other machines; gets turns of the parameter server."""

    @abstractmethod
    def on_request(self, key: str) -> None:
        """Receives the key that has proved a request to the parameter server."""


class ParameterServer(Service):
    """Holds the newest parameters, and the newest accounts of the senders of experience.

    A crash loses nothing important: the learner publishes to each new subscriber, and all
    components repeat their hello.

    Args:
        context: context of this process.
        join: service that admits other machines; None: none may join.
    """

    def __init__(self, context: Context, join: AdmissionService | None = None) -> None:
        self._context = context
        self._store = ParameterStore()
        self._policies = learning_policies(context.config)
        self._membership = Membership(
            protocol=PROTOCOL_VERSION,
            fingerprint=context.fingerprint,
            spec_hash=context.spec_hash,
        )
        self._accounts: dict[str, Mapping[str, Any]] = {}
        timeout = context.config.session_config.heartbeat.timeout
        self._incarnations = Incarnations(context.clock.now, timeout)
        # Of the run, for machines that have joined.
        self._load: Mapping[str, float] | None = None
        self._refusals = LineLimit(context.clock.now)
        # Requests that wait for newer parameters: the last such request of each peer.
        self._patient: dict[bytes, Request] = {}
        self._requests = context.wire.router("ps.requests", REQUESTS)
        self._publications = [
            context.wire.subscriber(PolicyId(policy).parameters, PUBLICATIONS)
            for policy in self._policies
        ]
        self._join = join
        self._ending = QuietPeriod(context)
        self._draining = False
        self._fetches = 0

    def tick(self) -> bool:
        """Receives the newest publication and replies to requests."""
        taken = max(map(self._read_publications, self._publications))
        answered = self._answer_requests()
        if taken or answered:
            self._ending.on_message()
        more = taken == _PUBLICATIONS_PER_TICK or answered == _REQUESTS_PER_TICK
        if self._join is not None:
            more |= self._join.tick()
        return more

    def _read_publications(self, publications: SubscriberSocket) -> int:
        """Drains a socket, because only the newest counts; returns the number of messages."""
        for taken in range(_PUBLICATIONS_PER_TICK):
            message = publications.receive()
            if message is None:
                return taken
            try:
                parameters = self._read(message)
            except DecodeError as error:
                endpoint, sender = publications.endpoint, message.sender.name
                self._context.wire.reject(endpoint, sender, str(error))
                continue
            if self._store.put(parameters):
                self._answer_patient()
        return _PUBLICATIONS_PER_TICK

    def _read(self, message: Message) -> Parameters:
        parameters = Parameters.from_message(message)
        if Sender.of(message).policy not in self._policies:
            known = ", ".join(self._policies)
            raise DecodeError(f"parameters of policy {parameters.policy}, expected {known}")
        return parameters

    def _answer_patient(self) -> None:
        waiting, self._patient = self._patient, {}
        for request in waiting.values():
            self._fetch(request, Sender.of(request.message))

    def _answer_requests(self) -> int:
        for answered in range(_REQUESTS_PER_TICK):
            request = self._requests.receive()
            if request is None:
                return answered
            if self._join is not None:
                self._join.on_request(request.key)
            self._answer(request)
        return _REQUESTS_PER_TICK

    def _answer(self, request: Request) -> None:
        kind, fields = request.message.kind, request.message.fields
        if kind == "hello":
            self._welcome(request)
            return
        sender = Sender.of(request.message, self._policies[0])
        unwanted = self._why_unwanted(sender, fields)
        if unwanted is not None:
            self._refuse(request, unwanted)
            return
        if sender.name != WATCH:
            # One that only asks whether the run goes on sends no experience.
            self._store_account(sender, fields.get("account"))
        if kind == "fetch":
            self._fetch(request, sender)
        elif kind == "info":
            newest = self._store.newest(sender.published)
            self._reply_info(request, "info", newest, {"load": self._load} if self._load else {})
        elif kind == "leave":
            self._requests.reply(request, "noted")
        else:
            self._load = fields.get("load", self._load)
            self._requests.reply(request, "accounts", {"accounts": self._accounts})
            self._close(self._incarnations.close_quiet())

    def _why_unwanted(self, sender: Sender, fields: Mapping[str, Any]) -> Refused | None:
        """Returns a refusal for an outdated incarnation or an unknown policy, else None."""
        superseded = self._membership.superseded(sender.name, sender.incarnation)
        if superseded is not None:
            return Refused(superseded)
        asks = f"'{sender.name}' asks for"
        if sender.policy not in self._policies:
            known = ", ".join(self._policies)
            return Refused(f"{asks} policy {sender.policy}, but this run has {known}")
        if sender.snapshot is None:
            return None
        if "account" in fields:
            return Refused(f"{asks} {sender.published} with an account: snapshots have none")
        if self._store.newest(sender.published) is None:
            # It may have been dropped since the agent has read of it.
            return Refused(f"{asks} {sender.published}: there is no such snapshot", expected=True)
        return None

    def _welcome(self, request: Request) -> None:
        message = request.message
        name = message.fields["name"]
        if not message.grant.owns(name):
            sender = message.sender.name
            self._refuse(
                request, Refused(f"'{sender}' may not say hello as '{name}'", stranger=True)
            )
            return
        if not self._context.wire.knows(name):
            reason = f"no component of this run is called '{name}'"
            self._refuse(request, Refused(reason, stranger=True))
            return
        answer = self._membership.hello(message.fields)
        if isinstance(answer, Refused):
            self._refuse(request, answer)
            return
        newest = self._store.newest(self._policies[0])
        fields = {
            "starts": answer.starts,
            "incarnation": answer.incarnation,
            "version": max(map(self._store.order, self._policies)),
            "iteration": 0 if newest is None else newest.iteration,
        }
        self._requests.reply(request, "welcome", fields)

    def _fetch(self, request: Request, sender: Sender) -> None:
        fields = request.message.fields
        newest = self._store.newest(sender.published)
        incarnation, version = fields["have"]
        if newest is None or newest.order <= (incarnation, version):
            if fields.get("patient", False):
                self._wait(request)
            else:
                self._reply_info(request, "not_modified", newest)
            return
        self._fetches += 1
        self._requests.reply(request, "parameters", newest.fields(), {"flat": newest.flat})

    def _wait(self, request: Request) -> None:
        """Replies with the next publication; a new request of a peer replaces its older one."""
        self._patient.pop(request.peer, None)
        if len(self._patient) >= _PATIENT_PEERS:
            # The oldest request: its client has given up long ago if it left without notice.
            del self._patient[next(iter(self._patient))]
        self._patient[request.peer] = request

    def _reply_info(
        self,
        request: Request,
        kind: str,
        newest: Parameters | None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        if newest is None:
            self._requests.reply(request, "empty")
            return
        self._requests.reply(request, kind, {**newest.about(), **more})

    def _store_account(self, sender: Sender, account: Mapping[str, Any] | None) -> None:
        """Stores the account that a sender reports; ignores accounts after the final one."""
        if account is None:
            return
        known, of = self._accounts.get(sender.key), self._incarnations
        # Limited, because the accounts of all senders must fit into one header.
        room = sender.account in of or len(of) < SENDERS_LIMIT // ENTRIES
        closed = of.is_closed(sender.account, sender.incarnation)
        if not room or closed or (known or {}).get("final", False):
            return
        self._accounts[sender.key] = {**account, "guest": True} if sender.joined else account
        of.note(sender.account, sender.incarnation, ended=account["final"])
        self._close((sender.account, each) for each in of.close_surplus(sender.account))

    def _close(self, closed: Iterable[tuple[str, int]]) -> None:
        """Removes the accounts of closed incarnations, whose numbers the learner has."""
        for account, incarnation in closed:
            self._accounts.pop(f"{account}/{incarnation}", None)

    def _refuse(self, request: Request, refused: Refused) -> None:
        """Sends a refusal to the peer, and logs a line in a minute for each component and kind."""
        reason, sender = refused.reason, request.message.sender.name
        known = sender if self._context.wire.knows(sender) else ""
        more = self._refusals.admit(known, "stranger" if refused.stranger else "")
        if more is not None and not refused.expected:
            self._context.event("refused", f"ps.requests: {reason}{more}")
        self._requests.refuse(request, reason, stranger=refused.stranger)

    def drain(self) -> None:
        """Continues to reply until the other components have left."""
        self._draining = True
        self._ending.look()

    @property
    def done(self) -> bool:
        """True once the run is over, or a drain has begun, and no message has come for 2 s.

        A run that no machine can join ends without that silence. Machines that have joined ask
        once more: whether the run goes on later.
        """
        ending = self._ending
        over = ending.run_over and self._join is None
        return ending.done or (self._draining and (over or ending.silent))

    def wait_on(self) -> list[Pollable]:
        """Returns the sockets of requests and publications."""
        join = self._join.wait_on() if self._join is not None else ()
        return [self._requests, *self._publications, *join]

    def status(self) -> dict[str, float]:
        incarnation, version = self._store.order(self._policies[0])
        return {
            "version": float(version),
            "learner_incarnation": float(incarnation),
            "components": float(len(self._membership)),
            "fetches": float(self._fetches),
            "refused_connections": float(self._context.wire.refused_connections),
        }
