"""Admission of clients: checks a hello, and welcomes its client or sends it away."""

from __future__ import annotations

from session.addons.gateway.client_tokens import ClientToken, TokenGate
from session.addons.gateway.connection import Connection
from session.errors import ConfigError
from session.version import VERSION as RELEASE
from surreal_like.addons.gateway.gateway import Gateway
from surreal_like.addons.gateway.messages import (
    VERSION,
    Hello,
    Incoming,
    encode_spec,
    send,
    send_busy,
    send_goodbye,
)
from surreal_like.addons.gateway.payloads import Refusal, shorten
from surreal_like.addons.gateway.sessions import Busy, Session
from surreal_like.experiment.machine import find_available_bytes

# Memory that is left to the rest of the machine when a client is admitted.
_SPARE_BYTES = 256 << 20


class Admission:
    """Decides which connections get a session, in a fixed order of checks.

    Args:
        gateway: Gateway of the sessions.
        max_message_bytes: Largest payload of a client.

    Raises:
        ConfigError: clients need tokens, and there is no folder that has them.
    """

    def __init__(self, gateway: Gateway, max_message_bytes: int) -> None:
        self._gateway, self._max_message_bytes = gateway, max_message_bytes
        self._gate: TokenGate | None = None
        if gateway.config.session_config.gateway.tokens:
            if gateway.folder is None:
                raise ConfigError(
                    "session_config.gateway.tokens: tokens are in the run folder: share it"
                )
            self._gate = TokenGate(gateway.folder.client_tokens)

    def greet(self, connection: Connection, message: Incoming) -> None:
        """Gives a connection its session, or sends it away.

        Args:
            connection: Connection without a session.
            message: First message of the connection.

        Raises:
            Refusal: it is no hello, or one with a wrong token, mode or number of environments.
        """
        if not isinstance(message, Hello):
            raise Refusal("wrong_state", "the first message of a connection is hello")
        gateway = self._gateway
        # The token comes first: strangers learn nothing of this gateway.
        token = self._check_token(message)
        mode = self._choose_mode(message.mode, token)
        num_envs = gateway.rows.num_envs
        if message.num_envs != num_envs:
            raise Refusal(
                "bad_hello",
                f"num_envs is {shorten(message.num_envs)}, this gateway has sessions of {num_envs}",
            )
        session, name = gateway.sessions.find(message.resume), "" if token is None else token.name
        if session is not None and (session.mode, session.token) == (mode, name):
            self._resume(session, connection)
        elif gateway.over:
            send_goodbye(connection, "finished")
        else:
            try:
                session = self._join(message, mode, name, connection)
            except Busy as busy:
                send_busy(connection, str(busy))
                return
            gateway.log.on_joined(session.host, session.name)
            self._welcome(session, connection, resumed=False)

    def _resume(self, session: Session, connection: Connection) -> None:
        gateway = self._gateway
        before = gateway.sessions.resume(session, connection, gateway.clock.now())
        if before is not None:
            before.owner = None
            before.close()
        gateway.counters.resumed += 1
        self._welcome(session, connection, resumed=True)

    def _join(self, hello: Hello, mode: str, token: str, connection: Connection) -> Session:
        gateway = self._gateway
        if gateway.draining:
            raise Busy("this gateway is ending")
        if find_available_bytes() < _SPARE_BYTES + gateway.rows.slot_bytes:
            raise Busy("this machine has too little memory left")
        names = [each.name for each in self._list_valid()]
        if not gateway.sessions.has_room_for(token, names):
            raise Busy("the last places are for clients of other tokens")
        displaced = gateway.sessions.find_displaced()
        if displaced is not None:
            gateway.leave(displaced, "displaced")
        session = gateway.sessions.join(hello, mode, connection, gateway.clock.now())
        session.token = token
        return session

    def _welcome(self, session: Session, connection: Connection, *, resumed: bool) -> None:
        """Sends the first answer of a connection."""
        connection.owner = session
        connection.admit()
        gateway = self._gateway
        settings, rows = gateway.config.session_config.gateway, gateway.rows
        welcome = {
            "kind": "welcome",
            "v": VERSION,
            "session": session.number,
            "resume": session.resumes[-1],
            "resumed": resumed,
            "seq": session.seq,
            "mode": session.mode,
            "num_envs": rows.num_envs,
            "obs_spec": encode_spec(rows.frame_spec),
            "action_spec": encode_spec(gateway.config.env_config.action_spec),
            "seed": gateway.make_seed(session),
            "version": gateway.policies.version,
            "max_message_bytes": self._max_message_bytes,
            "grace_seconds": settings.grace_seconds,
            "idle_seconds": settings.idle_seconds,
            "server": f"surreal_like {RELEASE}",
        }
        send(connection, welcome)

    def _check_token(self, hello: Hello) -> ClientToken | None:
        """Returns the client's token; None if clients need none.

        Raises:
            Refusal: the token is wrong, in one text for all reasons.
        """
        if self._gate is None:
            return None
        clock = self._gateway.clock
        token = self._gate.find(hello.token, now=clock.now(), wall=clock.time())
        if token is None:
            raise Refusal("bad_token", "this token is not valid here")
        return token

    def _choose_mode(self, wanted: str, token: ClientToken | None) -> str:
        """Returns the mode of a session; without a wish the first one that the token admits.

        Raises:
            Refusal: this gateway, or the token, is for other modes.
        """
        modes = self._gateway.policies.modes
        if wanted and wanted not in modes:
            known = ", ".join(modes)
            raise Refusal("not_supported", f"this gateway has no mode {wanted}: {known}")
        given = () if token is None else token.modes
        admitted = [each for each in modes if not given or each in given]
        mode = wanted or next(iter(admitted), "")
        if mode not in admitted:
            asked = wanted or ", ".join(modes)
            raise Refusal("bad_token", f"this token is for {', '.join(given)}, not for {asked}")
        return mode

    def _list_valid(self) -> list[ClientToken]:
        clock = self._gateway.clock
        gate = self._gate
        return [] if gate is None else gate.list_valid(now=clock.now(), wall=clock.time())

    def end_revoked(self) -> None:
        """Ends the sessions whose tokens are no longer valid."""
        if self._gate is None:
            return
        valid = {each.name for each in self._list_valid()}
        for session in self._gateway.sessions:
            if session.token not in valid:
                self._gateway.leave(session, "revoked")
