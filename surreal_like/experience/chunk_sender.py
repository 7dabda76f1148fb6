"""Sends chunks to replay: numbers them, keeps them until acked, sends lost ones again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from session.config import Config
from session.process.clock import boot_number
from session.process.context import Context, run_generation
from session.wire import Message
from session.wire.one_way_sockets import Socket
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.experience.chunk import Chunk, check_episodes, postprocess_chunk
from surreal_like.experience.send_window import Kept, SenderWindow, ShardRouter

# Chunks that come faster than this are sent together, unless they are large: each one sent alone
# wakes two threads here and two at replay, which costs more than the content of a small one.
_TOGETHER_SECONDS = 0.002
_TOGETHER_BYTES = 1 << 16
_LOOK_SECONDS = 0.25
# Unacked data beyond which an agent waits, whatever the number of chunks.
MAX_UNACKED_BYTES = 1 << 26
# One chunk in this number carries time stamps of its transfer.
TRACE_EVERY = 16


@dataclass(slots=True)
class ActorState:
    """Data exchanged between the agent and the sender of one component.

    Args:
        version: version of the parameters that the agent acts with.
        account: returns the sender's account, for the parameter server; None without a sender.
        postprocess: the agent's own last change of each chunk; None: there is none.
        pack: makes of each unroll the chunk that is sent; None: the unroll itself.
        generation: generation of the settings with which the agent was built.
        metrics: newest value of each of the agent's own metrics; added to episodes that end.
    """

    version: int = 0
    generation: int = 0
    account: Callable[[], Mapping[str, Any]] | None = None
    postprocess: Callable[[Chunk], Chunk] | None = None
    pack: Callable[[Chunk], Chunk] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


def acting_of(context: Context, policy: str = DEFAULT_POLICY) -> ActorState:
    """Returns the state of a policy in this component; creates it on first use.

    It is an attribute of the context, because in a script agent and sender have no reference to
    each other.
    """
    states: dict[str, ActorState] = vars(context).setdefault("acting", {})
    if policy not in states:
        states[policy] = ActorState(generation=run_generation(context.config))
    return states[policy]


class ExpSender:
    """Sends the chunks of one agent to a replay shard; never blocks.

    Args:
        context: context of this process.
        sender_config: ``session_config.sender``.
        policy: name of the policy that acts.

    Attributes:
        context, policy: the same.
        acting: state shared with the agent.
        now: returns the time [s].
        window: chunks that were cut and are not acked.
        env_steps: environment steps in all chunks so far; a FIRST row is none.
        episodes: episodes that ended in them; a lost life of a game that goes on is none.
    """

    def __init__(
        self, context: Context, sender_config: Config, policy: str = DEFAULT_POLICY
    ) -> None:
        self.window = SenderWindow(
            MAX_UNACKED_BYTES, sender_config.max_unacked_chunks, bool(context.component.sends)
        )
        self.env_steps = 0
        self.episodes = 0
        self.context, self.policy, self.now = context, policy, context.clock.now
        self.acting = acting_of(context, policy)
        self.acting.account = self.account
        self._route = ShardRouter(context, policy)
        self._boot = boot_number()
        self._sent_at = self._look_at = -math.inf
        self._held_bytes = 0
        self._ended = False

    @property
    def socket(self) -> Socket:
        """Socket that becomes readable when acks arrive."""
        return self._route.way.acks

    @property
    def traces_next(self) -> bool:
        """True if the next chunk gets time stamps."""
        # From the second one on: a slow run has few, and the first one has the start in it.
        return self.window.next_sequence % TRACE_EVERY == 2 % TRACE_EVERY

    def send(self, chunk: Chunk) -> None:
        """Numbers a chunk, whose columns must not change any more, and sends it.

        It is sent at once unless it is small and another was just sent: then with the next chunk
        that is sent at once, or by the next :meth:`pump`.

        Args:
            chunk: the chunk of a :class:`RowWriter`; its counts become those of this sender.

        Raises:
            DataError: replay would refuse a summary; nothing is sent then.
        """
        check_episodes(chunk.finished)
        window = self.window
        self.env_steps += chunk.env_steps
        self.episodes += len(chunk.finished)
        chunk.sequence = sequence = window.next_sequence
        chunk.policy = self.policy
        chunk.env_steps, chunk.episodes = self.env_steps, self.episodes
        traced = self.traces_next
        now = self.now()
        chunk.stamps = {**chunk.stamps, "cut": now, "boot": self._boot} if traced else {}
        if self.acting.postprocess is not None:
            chunk = postprocess_chunk(chunk, self.acting.postprocess)
        if self.acting.pack is not None:
            chunk = self.acting.pack(chunk)
        if window.skip():
            return
        chunk.rows = window.pushed + chunk.size
        size_bytes = chunk.size_bytes
        window.keep(Kept(sequence, chunk.to_message(), chunk.size, size_bytes))
        self._held_bytes += size_bytes
        if now - self._sent_at >= _TOGETHER_SECONDS or self._held_bytes >= _TOGETHER_BYTES:
            self.pump()

    def send_goodbye(self) -> None:
        """Sends the goodbye, which is acked like a chunk; nothing if there was no chunk."""
        self._ended = True
        window = self.window
        if window.next_sequence == 1 or window.skip():
            return
        fields = {
            "seq": window.next_sequence,
            "rows": window.pushed,
            "env_steps": self.env_steps,
            "episodes": self.episodes,
        }
        window.keep(Kept(window.next_sequence, Message("goodbye", fields)))
        self.pump()

    def pump(self) -> None:
        """Reads acks, and sends the chunks that can be sent now."""
        now, window, route = self.now(), self.window, self._route
        self._held_bytes = 0
        self._read_acks(now)
        # Events of a connection wait in a queue; they matter before a chunk is sent.
        if window.next_to_send() is not None or now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            if route.look(now):
                window.lost()
        if route.returning:
            if window.under_way:
                return
            route.go_home()
        window.at(route.way.shard)
        while (kept := window.next_to_send()) is not None:
            fields = kept.message.fields
            if not window.resumes:
                # Else a shard that has lost its rows would not ask for them again.
                fields["acked"] = window.acked
                fields["acked_rows"] = window.acked_rows
            fields["filled"] = window.filled
            if fields.get("stamps"):
                fields["stamps"]["sent"] = now
            if not route.way.experience.send(kept.message):
                return
            window.sent(now)
            self._sent_at = now

    def _read_acks(self, now: float) -> None:
        received = False
        while (message := self._route.way.acks.receive()) is not None:
            received = True
            entry = message.fields["senders"].get(self.context.name)
            known = entry is not None and entry[0] == self.context.incarnation
            counts = entry[1:4] if known else ()
            self.window.on_acks(now, message.sender.incarnation, *counts)
        if received:
            self.window.resend_if_still(now)

    def account(self) -> dict[str, Any]:
        """Returns rows by outcome, as reported to the parameter server; final after the goodbye."""
        names = ("pushed", "inserted", "dropped", "unacked")
        return {
            **{name: getattr(self.window, name) for name in names},
            "env_steps": self.env_steps,
            "episodes": self.episodes,
            "final": self._ended,
        }
