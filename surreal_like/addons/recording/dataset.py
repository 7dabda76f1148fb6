"""Sends the rows of a recording to replay, as agents send theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from session.addons import count_acting
from session.config import Config
from session.errors import ConfigError
from session.process.component import split_name
from session.process.context import Context
from session.process.periodic import Every, Rate
from session.process.service import Service
from session.wire.one_way_sockets import Socket
from surreal_like.addons.recording.reader import Recording, list_policies, open_shards
from surreal_like.addons.recording.sources import SOURCES, path_in
from surreal_like.data.columns import Manifest, parse_columns
from surreal_like.data.frames import frame_spec, stack_size, stack_spec
from surreal_like.data.policy_names import DEFAULT_POLICY, PolicyId
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.chunk_sender import ExpSender
from surreal_like.experience.leaving import Leaving
from surreal_like.policies.config import policy_configs
from surreal_like.ps.parameter_client import ParameterClient
from surreal_like.ps.schemas import ANSWERS

_LOOK_SECONDS = 0.25
# Chunks that are sent before the process looks at its other work.
_AT_ONCE = 16


def open_source(config: Config, key: str, policy: str = DEFAULT_POLICY) -> Recording:
    """Returns a recording that a policy learns from.

    Args:
        config: config of the policy, resolved.
        key: key with its path.
        policy: name of the policy.

    Raises:
        ConfigError: its rows do not fit to those of the experiment; names both.
        UsageError: there is no recording.
    """
    path = path_in(config, key)
    # The policy of a run of one may be any.
    recording = Recording(path, PolicyId(policy).add() or None)
    env = config.env_config
    ours = {
        "obs_spec": frame_spec(env.obs_spec.to_dict(), stack_size(env)),
        "action_spec": env.action_spec.to_dict(),
    }
    for name, spec in ours.items():
        if _shape(recording.specs[name]) != _shape(spec):
            raise ConfigError(
                f"{key} is {path}, whose {name} is {recording.specs[name]}, but "
                f"env_config.{name} is {spec}"
            )
    return recording


def recorded_specs(
    user: Config, config: Config
) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Returns observation and action spec of an experiment that steps no environment.

    Args:
        user: settings of the user.
        config: resolved experiment.

    Returns:
        The specs of its data set; None if it has none, if that is of several policies, or if
        something steps an environment.

    Raises:
        UsageError: there is no recording.
    """
    session, env = config.session_config, config.env_config
    if not session.dataset.path or session.evaluator.num or count_acting(session):
        return None
    _, shards = open_shards(session.dataset.path)
    if len(list_policies(shards)) > 1:
        return None
    specs = shards[0].about["specs"]
    return stack_spec(specs["obs_spec"], stack_size(env)), specs["action_spec"]


def _shape(spec: Any) -> Any:
    """Returns a spec without bounds, which differ between versions of an environment."""
    if isinstance(spec, Mapping):
        return {key: _shape(each) for key, each in spec.items() if key not in ("low", "high")}
    return list(spec) if isinstance(spec, tuple) else spec


class _Feed:
    """Sends the part of a recording that one process has, for one policy.

    Args:
        context: context of the process.
        config: config of the policy.
        policy: name of the policy.
        key: key with the path of the recording.
        part: number of the part, and of all parts.
    """

    def __init__(
        self, context: Context, config: Config, policy: str, key: str, part: tuple[int, int]
    ) -> None:
        self.sender = ExpSender(context, config.session_config.sender, policy)
        self.client = ParameterClient(
            context.wire.dealer("ps.requests", ANSWERS), context.clock, policy=policy
        )
        self.leaving = Leaving(context, self.sender, self.client, self.sender.account)
        self.rows = Rate(clock=context.clock.now)
        self.sent = False
        self._columns = parse_columns(config.learner_config.replay.columns)
        self._context, self._reported = context, 0
        self._recording, self._part = open_source(config, key, policy), part
        self._chunks = self._read()

    def _read(self) -> Iterator[Chunk]:
        return adapt(self._recording.part(*self._part), self._columns)

    def send(self) -> bool:
        """Sends what replay takes now; returns True if more may be sent at once."""
        sender = self.sender
        if sender.window.again:
            sender.window.again = self.sent = False
            self._chunks = self._read()
        for _ in range(_AT_ONCE):
            if self.sent or not sender.window.ready:
                break
            chunk = next(self._chunks, None)
            if chunk is None:
                # The goodbye comes last, as of an agent: a shard forgets those that have left.
                self.sent = True
            else:
                sender.send(chunk)
                self.rows.add(chunk.size)
        sender.pump()
        self._report_damages()
        return not self.sent and sender.window.ready

    def _report_damages(self) -> None:
        """Reports those that were found since the last time."""
        damages = self._recording.damages
        for damage in damages[self._reported :]:
            self._context.event("recording_damaged", str(damage))
        self._reported = len(damages)


def adapt(chunks: Iterator[Chunk], columns: Manifest) -> Iterator[Chunk]:
    """Yields recorded chunks as chunks of one new sender, with the columns that replay keeps.

    They have no environment steps and no episodes, so that neither counts for the run, and the
    version 0, of no parameters of the run.

    Raises:
        ConfigError: a column that replay keeps was not recorded.
    """
    ids = count()
    streams: dict[tuple[tuple[str, int], int], int] = {}
    newest: dict[tuple[str, int], int] = {}
    for chunk in chunks:
        sender = chunk.sender, chunk.incarnation
        if newest.get(sender, 0) + 1 != chunk.sequence:
            # A chunk between is not there: its streams do not go on.
            streams = {key: stream for key, stream in streams.items() if key[0] != sender}
        newest[sender] = chunk.sequence
        missing = [name for name in columns if name not in chunk.columns]
        if missing:
            raise ConfigError(
                f"this algorithm needs the column {missing[0]}, which the recording lacks: it has "
                f"{', '.join(chunk.columns)}"
            )
        numbers = [streams.setdefault((sender, each), next(ids)) for each in chunk.streams]
        if chunk.tail:
            for each in chunk.streams:
                del streams[sender, each]
        own = {name: chunk.columns[name][: chunk.length] for name in columns}
        own["version"] = np.zeros_like(own["version"])
        yield replace(
            chunk,
            columns=own,
            streams=numbers,
            overlap=0,
            lead_in={},
            finished=[],
            env_steps=0,
            acked=0,
            acked_rows=0,
            stamps={},
        )


class DatasetService(Service):
    """Sends a recording once, and stays until the run is over.

    A process that takes the place of one that was killed, also in a later part of the run, sends
    the same chunks under the same numbers, behind those that replay has taken. A shard that has
    lost its rows gets all of them again.

    Args:
        context: context of the process.
    """

    def __init__(self, context: Context) -> None:
        stem, _ = split_name(context.name)
        alike = [
            each for each in context.topology.of_kind("data") if split_name(each.name)[0] == stem
        ]
        part, key = (context.component.index, len(alike)), SOURCES[stem]
        self._feeds = [
            _Feed(context, own, name, key, part)
            for name, own in policy_configs(context.config).items()
            if path_in(own, key)
        ]
        self._look_due = Every(seconds=_LOOK_SECONDS, clock=context.clock.now)

    def tick(self) -> bool:
        """Sends chunks, or continues leaving the run."""
        if self._leaves:
            for feed in self._feeds:
                feed.leaving.tick()
            return False
        more = [feed.send() for feed in self._feeds]
        first = self._feeds[0].client
        first.receive()
        if self._look_due():
            first.ask_info(self._feeds[0].sender.account())
        if first.newest.final:
            self.drain()
        return any(more)

    @property
    def _leaves(self) -> bool:
        return self._feeds[0].leaving.begun

    def drain(self) -> None:
        """Ends the sending, and starts to wait for the last acks."""
        if self._leaves:
            return
        for feed in self._feeds:
            feed.leaving.begin()
            feed.sender.send_goodbye()

    @property
    def done(self) -> bool:
        """True once everything is acked and reported, unless the process has to stay."""
        return all(feed.leaving.done for feed in self._feeds)

    def wait_on(self) -> Sequence[Socket]:
        """Returns the sockets of acks, and of the parameter server."""
        own = [(feed.sender.socket, feed.client.socket) for feed in self._feeds]
        return [socket for sockets in own for socket in sockets]

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths for the heartbeat."""
        windows = [feed.sender.window for feed in self._feeds]
        return {
            "rows_per_second": sum(feed.rows.per_second() for feed in self._feeds),
            "unacked_rows": float(sum(window.unacked for window in windows)),
            "waits_for_acks": float(not all(window.ready for window in windows)),
        }
