"""Settings of one replay shard from the configs, as plain arguments for its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from session.config import Config
from session.errors import ConfigError
from session.process.seeding import component_seed
from surreal_like.data.frames import stack_size
from surreal_like.replay.select.age import AgeRule
from surreal_like.replay.view.n_step import NStepView
from surreal_like.transform.reward import make_reward_transform

_ROUNDING = 0.01  # of an unroll: a share such as 0.333 is meant as a third

_BATCH = "learner_config.replay.batch_size"
_SHARE = "learner_config.replay.replay_proportion"


@dataclass(frozen=True, slots=True)
class UnrollPlan:
    """Sizes of one shard, in unrolls.

    Args:
        steps: T.
        num_envs: N, the streams of an unroll.
        batch: unrolls in a batch.
        again: replayed unrolls among these.
        queue: unrolls that the queue has room for.
        ring: unrolls that are kept to be replayed.
        max_bytes: bound on the memory of both, 0 for none.
    """

    steps: int
    num_envs: int
    batch: int
    again: int
    queue: int
    ring: int
    max_bytes: int

    def within_bytes(self, unroll_bytes: int) -> UnrollPlan:
        """Returns the same plan, scaled down in proportion where ``max_bytes`` requires it.

        Raises:
            ConfigError: no batch has room.
        """
        wanted = self.queue + self.ring
        room = self.max_bytes // max(unroll_bytes, 1) if self.max_bytes else wanted
        if wanted <= room:
            return self
        queue = room * self.queue // wanted
        smaller = replace(self, queue=queue, ring=room - queue if self.ring else 0)
        if smaller.queue < self.batch or smaller.ring < self.again:
            raise ConfigError(
                f"learner_config.replay.max_bytes leaves {self.max_bytes} bytes to a shard, that is"
                f" {smaller.queue} unrolls in the queue and {smaller.ring} to be replayed, of "
                f"{self.steps} steps x {self.num_envs} streams = {unroll_bytes} bytes each, but "
                f"one batch takes {self.batch} from the queue and {self.again} of the others: "
                "sampling would never start; raise max_bytes or lower batch_size"
            )
        return smaller


def plan_unrolls(learner_config: Config, env_config: Config, session_config: Config) -> UnrollPlan:
    """Returns the plan of one shard.

    Raises:
        ConfigError: a batch is no whole number of unrolls, or never fits; a setting is another
            replay's.
    """
    replay = learner_config["replay"]
    num_envs, steps = env_config["num_envs"], session_config["sender"]["flush_iteration"]
    _require_own_settings(replay, learner_config["algo"]["n_step"])
    batch, rest = divmod(replay["batch_size"], num_envs)
    if rest:
        raise ConfigError(
            f"{_BATCH} is {replay['batch_size']} streams, no multiple of env_config.num_envs "
            f"{num_envs}: batches are made of whole unrolls"
        )
    share = replay["replay_proportion"]
    capacity = shard_of(replay["capacity"], learner_config)
    ring = shard_of(replay["replay_capacity"], learner_config) if share else 0
    again = _replayed(share, batch, num_envs)
    rows = steps * num_envs
    most_bytes = shard_of(replay["max_bytes"], learner_config)
    plan = UnrollPlan(steps, num_envs, batch, again, capacity // rows, ring // rows, most_bytes)
    _require_room(plan, "capacity", capacity, batch, "sampling would never start")
    _require_room(plan, "replay_capacity", ring, again, "nothing would ever be replayed")
    return plan


def _require_own_settings(replay: Mapping[str, Any], n_step: int) -> None:
    if n_step != 1:
        raise ConfigError(
            f"learner_config.algo.n_step is {n_step}, but FIFOReplay gives whole unrolls, of which "
            "the algorithm makes its own returns: set it to 1"
        )
    if replay["samples_per_insert"]:
        raise ConfigError(
            f"learner_config.replay.samples_per_insert is {replay['samples_per_insert']:g}, but "
            f"FIFOReplay gives each row once: set it to 0; {_SHARE} gives rows again"
        )
    if AgeRule.of(replay).matters and not replay["replay_proportion"]:
        raise ConfigError(
            "learner_config.replay.age says which unrolls FIFOReplay gives again, but "
            f"{_SHARE} is 0: set that, or evict_rule.max_version_lag for the queue"
        )


def _replayed(share: float, batch: int, num_envs: int) -> int:
    wanted = share * batch
    again = round(wanted)
    if abs(wanted - again) > _ROUNDING or (share and not 0 < again < batch):
        shares = ", ".join(f"{count / batch:.4g}" for count in range(min(batch, 9)))
        raise ConfigError(
            f"{_SHARE} is {share:g}, but {share:g} x {batch} unrolls of a batch ({_BATCH} "
            f"{batch * num_envs} / env_config.num_envs {num_envs}) = {wanted:g}, expected a whole "
            f"number below {batch}: possible are {shares}"
        )
    return again


def _require_room(plan: UnrollPlan, name: str, rows: int, unrolls: int, else_: str) -> None:
    needed = unrolls * plan.steps * plan.num_envs
    if needed > rows:
        raise ConfigError(
            f"learner_config.replay.{name} leaves {rows} rows to a shard, but one batch takes "
            f"{unrolls * plan.num_envs} streams x {plan.steps} steps = {needed} rows of them: "
            f"{else_}; raise {name} or lower batch_size"
        )


def make_view(learner_config: Config, env_config: Config) -> NStepView:
    """The n-step view of ``learner_config.algo``, on stacks by ``env_config.frame_stack``."""
    algo = learner_config["algo"]
    return NStepView(
        algo["n_step"],
        algo["gamma"],
        transform=make_reward_transform(algo),
        frame_stack=stack_size(env_config),
    )


def shard_of(total: int, learner_config: Config) -> int:
    """Share of one shard in a number of rows or bytes, rounded up."""
    return -(-total // int(learner_config["replay"]["replay_shards"]))


def require_eviction(learner_config: Config, session_config: Config) -> None:
    """Raises ConfigError if an evict rule is set but never applied."""
    rule = {name: limit for name, limit in learner_config["replay"]["evict_rule"].items() if limit}
    if rule and not session_config["replay"]["evict_interval"]:
        name, limit = next(iter(rule.items()))
        raise ConfigError(
            f"learner_config.replay.evict_rule.{name} is {limit}, but "
            "session_config.replay.evict_interval is 0, so it is never applied: set that to the "
            "seconds between two passes, such as 1"
        )


def require_none_replayed(learner_config: Config) -> None:
    """Raises ConfigError if unrolls are to be replayed: only FIFOReplay can."""
    share: float = learner_config["replay"]["replay_proportion"]
    if share:
        raise ConfigError(
            f"learner_config.replay.replay_proportion is {share:g}, but this replay draws each row "
            "again and again; it is for FIFOReplay: set it to 0"
        )


def require_room_for_a_chunk(
    capacity: int, env_config: Config, session_config: Config, why: str = ""
) -> None:
    """Raises ConfigError if a whole chunk of an agent can never be inserted.

    Args:
        capacity: rows of one shard.
        env_config: its ``num_envs`` is N.
        session_config: its ``sender.flush_iteration`` is T.
        why: arithmetic of the capacity, if it is not the number that the user gave.
    """
    steps: int = session_config["sender"]["flush_iteration"]
    streams: int = env_config["num_envs"]
    if steps * streams > capacity:
        raise ConfigError(
            f"capacity leaves {capacity} rows to a shard{why and f' ({why})'}, but one chunk is "
            f"flush_iteration {steps} x num_envs {streams} = {steps * streams} rows: each would be "
            "dropped; raise the capacity or lower session_config.sender.flush_iteration"
        )


def require_messages(
    env_config: Config, session_config: Config, *, row_bytes: int, rows: int
) -> None:
    """Raises ConfigError if a chunk, or an answer to the learner, is too large to be sent.

    Args:
        env_config, session_config: the experiment's.
        row_bytes: least bytes of a row on the wire.
        rows: rows of one answer.
    """
    steps: int = session_config["sender"]["flush_iteration"]
    streams: int = env_config["num_envs"]
    most: int = session_config["max_message_bytes"]
    for what, count, remedy in (
        (f"chunk of {steps} steps x {streams} streams", steps * streams, "sender.flush_iteration"),
        (f"answer of {rows} rows", rows, "learner.batches_per_request, or replay.batch_size"),
    ):
        if count * row_bytes > most:
            raise ConfigError(
                f"session_config.max_message_bytes is {most}, but one {what} x {row_bytes} bytes "
                f"of a row = {count * row_bytes}: it would never be sent; raise it, or lower "
                f"{remedy}"
            )


def default_seed(session_config: Config) -> int:
    """Seed of a replay that has not been given one."""
    return component_seed(session_config["seed"], "replay-0", 1)


def limits(
    learner_config: Config, env_config: Config, session_config: Config, *, n: int
) -> dict[str, Any]:
    """Arguments of one shard's Limiter.

    A chunk of T steps of N streams makes at most ``(T + n - 1) N`` rows sampleable: n - 1 earlier
    ones of each stream may have waited for it.
    """
    replay = learner_config["replay"]
    steps = session_config["sender"]["flush_iteration"] + n - 1
    batches = session_config["learner"]["batches_per_request"]
    return {
        "min_size": shard_of(replay["min_size"], learner_config),
        "samples_per_insert": replay["samples_per_insert"],
        "tolerance": replay["tolerance"],
        "chunk_rows": steps * env_config["num_envs"],
        "request_rows": replay["batch_size"] * batches,
    }


def waiting_words(env_config: Config, session_config: Config, *, n: int) -> str:
    """Explains :func:`waiting_rows` by the keys that a user sets."""
    agents, streams = session_config["agent"]["num"], env_config["num_envs"]
    return f"agent.num {agents} x num_envs {streams} x {n} rows of each, by n_step or frame_stack"


def waiting_rows(
    learner_config: Config, env_config: Config, session_config: Config, *, n: int
) -> int:
    """Rows of one shard that cannot be sampled at any time: ``n`` for each of its streams."""
    agents = shard_of(session_config["agent"]["num"], learner_config)
    return int(n * env_config["num_envs"] * agents)
