"""Routes the chunks of an agent to its replay shard, or to another one while that is away."""

from __future__ import annotations

import math

from session.process.context import Context
from session.wire.sockets import PushSocket, SubscriberSocket
from surreal_like.experience.schemas import ACKS


class ShardConnection:
    """The sockets between an agent and one shard.

    Args:
        context: of this process.
        shard: number of the shard.

    Attributes:
        away_since: clock time in seconds at which the connection was lost, or first attempted;
            infinity while it exists.
        lost: True if the newest :meth:`look` found that the connection was lost.
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
        """Reads the events of the connection."""
        self.lost = False
        for made in self.experience.connection_events():
            self.lost |= not made
            self.away_since = math.inf if made else now
        # The connection may have been made before its events were watched.
        if self.away_since < math.inf and self.experience.writable():
            self.away_since = math.inf

    def close(self) -> None:
        """Closes both sockets; messages that were not sent yet are discarded."""
        self.experience.close()
        self.acks.close()


class ShardRouter:
    """Chooses the shard that an agent's chunks go to.

    Each agent has one shard, its index modulo their number, because a socket connected to several
    would alternate between them and tear streams apart. When that shard is away for too long the
    next one replaces it; when it is back and no chunk is in flight elsewhere, the agent returns.

    Args:
        context: of this process.
        failover_seconds: longest time for which a shard may be away.

    Attributes:
        way: the present connection.
    """

    def __init__(self, context: Context, failover_seconds: float) -> None:
        self._context = context
        connects = context.component.connects
        self._shards = sum(end.endswith(".experience") for end in connects)
        self._failover_seconds = failover_seconds
        self._home = self.way = ShardConnection(context, context.component.index % self._shards)

    def look(self, now: float) -> bool:
        """Returns True if chunks in flight may be lost: the connection was lost or is given up."""
        self._home.look(now)
        if self.way is not self._home:
            self.way.look(now)
        if now - self.way.away_since < self._failover_seconds or self._shards == 1:
            return self.way.lost
        self._take((self.way.shard + 1) % self._shards)
        return True

    @property
    def returning(self) -> bool:
        """True if the agent's own shard is back: no new chunks go to the other one."""
        return self.way is not self._home and self._home.away_since == math.inf

    def go_home(self) -> None:
        """Returns to the agent's own shard; call it when no chunk is in flight."""
        self._take(self._home.shard)

    def _take(self, shard: int) -> None:
        context, before = self._context, self.way
        self.way = self._home if shard == self._home.shard else ShardConnection(context, shard)
        if before is not self._home:
            before.close()
        if self.way.away_since < math.inf:
            # The new shard gets the full failover time to connect.
            self.way.away_since = context.clock.now()
        context.event(
            "rerouted", f"experience goes to replay-{shard}, not to replay-{before.shard}"
        )
