"""Which replay shard the chunks of an agent go to: its own, or another one while that is away."""

from __future__ import annotations

import math

from session.context import Context
from session.wire.sockets import PushSocket, SubscriberSocket
from surreal_like.replay.schemas import ACKS


class ShardConnection:
    """The sockets between an agent and one shard.

    Args:
        context: of this process.
        shard: its number.

    Attributes:
        away_since: when its connection was lost, or first sought; infinity while it stands.
        lost: it was lost since the last look.
    """

    def __init__(self, context: Context, shard: int) -> None:
        name, session = f"replay-{shard}", context.config.session_config
        self.shard = shard
        self.experience: PushSocket = context.wire.push(
            f"{name}.experience", high_water_mark=session.replay.high_water_mark
        )
        self.acks: SubscriberSocket = context.wire.subscriber(
            f"{name}.acks", ACKS, name=context.name
        )
        address = context.wire.addresses[f"{name}.experience"].connect
        # In one process there is no connection that could be lost.
        self.away_since = math.inf if address.startswith("inproc:") else context.clock.now()
        self.lost = False
        self.look(context.clock.now())

    def look(self, now: float) -> None:
        """Takes what has become of the connection."""
        self.lost = False
        for made in self.experience.connection_events():
            self.lost |= not made
            self.away_since = math.inf if made else now
        # Whoever begins to watch may have missed that the connection was made.
        if self.away_since < math.inf and self.experience.writable():
            self.away_since = math.inf

    def close(self) -> None:
        """What has not left yet does not leave any more."""
        self.experience.close()
        self.acks.close()


class ShardRouter:
    """The way that is taken now.

    Each agent has one shard, its index modulo their number, because a socket connected to several
    would alternate between them and tear streams apart. When that is away for too long the next
    one takes its place; when it comes back and nothing is under way elsewhere, the agent returns.

    Args:
        context: of this process.
        failover_seconds: how long a shard may be away.

    Attributes:
        way: the present one.
    """

    def __init__(self, context: Context, failover_seconds: float) -> None:
        self._context = context
        self._shards = len(context.topology.of_kind("replay"))
        self._failover_seconds = failover_seconds
        self._home = self.way = ShardConnection(context, context.component.index % self._shards)

    def look(self, now: float) -> bool:
        """True if what was under way may be lost: the connection was, or is given up."""
        self._home.look(now)
        if self.way is not self._home:
            self.way.look(now)
        if now - self.way.away_since < self._failover_seconds or self._shards == 1:
            return self.way.lost
        self._take((self.way.shard + 1) % self._shards)
        return True

    @property
    def returning(self) -> bool:
        """The agent's own shard is there again: nothing new goes to the other one."""
        return self.way is not self._home and self._home.away_since == math.inf

    def go_home(self) -> None:
        """Nothing is under way any more: from now on to the agent's own shard."""
        self._take(self._home.shard)

    def _take(self, shard: int) -> None:
        context, before = self._context, self.way
        self.way = self._home if shard == self._home.shard else ShardConnection(context, shard)
        if before is not self._home:
            before.close()
        if self.way.away_since < math.inf:
            # It has as long as the one before to be there.
            self.way.away_since = context.clock.now()
        context.event(
            "rerouted", f"experience goes to replay-{shard}, not to replay-{before.shard}"
        )
