"""Plan of a queue of unrolls from the configs, counted in unrolls; refuses what cannot work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from session.config import Config
from session.errors import ConfigError
from surreal_like.replay import settings
from surreal_like.replay.age_selector import AgeRule

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
    capacity = settings.shard_of(replay["capacity"], learner_config)
    ring = settings.shard_of(replay["replay_capacity"], learner_config) if share else 0
    again = _replayed(share, batch, num_envs)
    rows = steps * num_envs
    most_bytes = settings.shard_of(replay["max_bytes"], learner_config)
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
