"""The side of a learner's process that learns, publishes, saves and sets bad batches aside."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from session.config import Config
from session.config.named_code import with_kept_plan
from session.config.sections import sections_of
from session.errors import CheckpointError, RunError, describe
from session.folder import RunFolder, write_atomically
from session.process.context import Context, run_generation
from session.process.periodic import Every, Rate
from session.process.seeding import component_seed
from surreal_like.data.parameters import manifest_size_bytes
from surreal_like.data.policy_names import (
    DEFAULT_POLICY,
    league_place,
    shard_name,
    snapshot_settings,
)
from surreal_like.dataflow.flow import NOT_READY, STALLED
from surreal_like.dataflow.items import Trained
from surreal_like.learner.base import Learner
from surreal_like.learner.league import League
from surreal_like.learner.saver import Saver
from surreal_like.network.flat import manifest_of, named_tensors
from surreal_like.replay.client import ReplayClient, Sampled

# Limits of updates in a row: that raised another exception, and that were bad.
RAISED_LIMIT, BAD_LIMIT = 3, 10
_MOST = 10
_MOST_BYTES = 1 << 26


class NotFinite(RunError):
    """The loss or the gradient of an update was not finite, so nothing was changed."""


class Quarantine:
    """Stores the first batches that ``learn`` failed on.

    An update is bad if ``learn`` raised an exception, or reported that it skipped the batch. A
    batch is written to ``<folder>/<number>.npz`` (its columns, up to 64 MiB) and ``<number>.json``
    (the error, the source of its rows, and the senders from which that shard has rows); at most ten
    per run.

    Args:
        folder: quarantine folder of the run, or of a policy; created when needed.
        policy: name of the policy.
    """

    def __init__(self, folder: Path, policy: str = DEFAULT_POLICY) -> None:
        self._folder, self._policy = folder, policy
        self._kept = len(list(folder.glob("*.json"))) if folder.is_dir() else 0
        self._first: Exception | None = None
        self._bad = self._raised = 0

    def clear(self) -> None:
        """Resets the counters after a good update."""
        self._first = None
        self._bad = self._raised = 0

    @property
    def in_a_row(self) -> int:
        """Number of bad updates since the last good one."""
        return self._bad

    def add(
        self,
        sampled: Sampled | None,
        error: Exception,
        iteration: int,
        counts: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> Path | None:
        """Counts a bad update and stores its batch; returns the path, None if it was not stored.

        Of non-finite updates in a row only the first is stored.

        Args:
            sampled: the batch; None: there is none.
            error: error of the update.
            iteration: iteration of the learner.
            counts: counts of each replay shard, as :meth:`ReplayClient.counts` returns them.
        """
        repeated = bool(self._bad) and isinstance(error, NotFinite)
        self._first = self._first or error
        self._bad += 1
        self._raised += not isinstance(error, NotFinite)
        if repeated or sampled is None or self._kept >= _MOST:
            return None
        self._kept += 1
        return self._keep(sampled, error, iteration, counts)

    def end(self) -> Exception | None:
        """Returns the first error of the row if the row has reached its limit."""
        over = self._raised >= RAISED_LIMIT or self._bad >= BAD_LIMIT
        return self._first if over else None

    def _keep(
        self,
        sampled: Sampled,
        error: Exception,
        iteration: int,
        counts: Mapping[str, Mapping[str, Any]],
    ) -> Path | None:
        columns = sampled.columns
        replay = f"{shard_name(self._policy, sampled.shard)}/{sampled.incarnation}"
        path = self._folder / f"{self._kept}.json"
        record: dict[str, Any] = {
            "error": describe(error),
            "traceback": "".join(traceback.format_exception(error)),
            "iteration": iteration,
            "replay": replay,
            "senders": {
                name: {"inserted": rows["inserted"], "dropped": rows["dropped"]}
                for name, rows in counts.get(replay, {}).get("senders", {}).items()
            },
            "columns": {name: f"{a.dtype} {list(a.shape)}" for name, a in columns.items()},
        }
        if "version" in columns:
            versions = columns["version"]
            record["versions"] = [int(versions.min()), int(versions.max())]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if sum(each.nbytes for each in columns.values()) <= _MOST_BYTES:
                # Without allow_pickle, which numpy 1.26 would save as a column.
                arrays: dict[str, Any] = {**columns}
                np.savez(path.with_suffix(".npz"), **arrays)
            write_atomically(path, json.dumps(record, indent=2) + "\n")
        except OSError:
            # A full disk must not end a run; the event still has the error.
            return None
        return path


def fresh_versions(columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Returns the versions of a batch, ``[B]`` or ``[T, B]``, without replayed streams.

    Those are old by intention, and carry no information about the agents' lag.
    """
    versions, replayed = columns["version"], columns.get("replayed")
    return versions if replayed is None else versions[..., ~replayed]


def exploit_of(config: Config) -> dict[str, Any]:
    """Returns generation and settings of a trial that has taken over another one, else nothing."""
    run = config.get("run") or {}
    return {name: run[name] for name in ("generation", "settings") if name in run}


@dataclass(frozen=True, slots=True)
class Update:
    """One update.

    Args:
        metrics: name -> number or scalar tensor.
        versions: versions of the parameters that acted, ``[B]`` or ``[T, B]``; None if unknown.
        stamps: times of a traced batch [s], by name; empty for others.
        published: True if the new weights were published.
        policy: policy of which it is.
    """

    metrics: Mapping[str, Any]
    versions: npt.NDArray[np.int64] | None
    stamps: Mapping[str, Any]
    published: bool
    policy: str = DEFAULT_POLICY


@dataclass(frozen=True, slots=True)
class Learned:
    """One attempt to learn.

    Args:
        had_batch: True if there was something to learn from.
        asked: time at which it was needed, by the clock [s].
        waiting: number of batches that waited then.
        updates: updates that were made.
        error: error with which the run cannot go on, else None.
    """

    had_batch: bool
    asked: float
    waiting: int = 0
    updates: Sequence[Update] = ()
    error: Exception | None = None


class LearnerWorker:
    """Learns from batches, publishes parameters, and saves checkpoints; counts nothing of a run.

    Args:
        context: context of this process.
        learner: not yet connected.
        folder: the run folder.
        policy: name of the policy.
    """

    def __init__(
        self, context: Context, learner: Learner, folder: RunFolder, policy: str = DEFAULT_POLICY
    ) -> None:
        self._context, self._learner, self._policy = context, learner, policy
        config = context.config.session_config.checkpoint
        self._folder = folder
        run = context.config.get("run") or {}
        self._saver = Saver(
            learner, folder, config, context.clock, self._complain, run, policy=policy
        )
        self._updates = Rate(clock=context.clock.now)
        every = context.config.session_config.tensorplex.debug_summaries
        self._summaries_due = Every(calls=every, clock=context.clock.now)
        aside = folder.quarantine
        self._quarantine = Quarantine(aside if policy == DEFAULT_POLICY else aside / policy, policy)
        self._rows_trained = 0
        settings = snapshot_settings(context.config.get("policies"), policy)
        place = folder.checkpoints / league_place(policy)
        self._league = None if settings is None else League(place, settings, self._complain)

    def _complain(self, text: str) -> None:
        self._context.event("checkpoint_bad", text)

    def restore(self) -> Mapping[str, Any] | None:
        """Restores the newest checkpoint; returns its state, None if there is none."""
        state = self._saver.restore()
        if state is not None and "donor" in state:
            self._seed_learner(self._learner, run_generation(self._context.config))
        return state

    def load(self, config: Config) -> Mapping[str, Any]:
        """Builds a new learner, restores the donor's checkpoint into it, and publishes it.

        A new object keeps nothing that the old one made of its settings. Connections stay.

        Args:
            config: config with the settings and the generation that the tuning has written.

        Returns:
            State of the donor's checkpoint.

        Raises:
            CheckpointError: that checkpoint is damaged, or does not fit.
        """
        config = with_kept_plan(config, self._folder)
        old = self._learner
        self._seed(run_generation(config))
        learner = type(old)(**sections_of(config))
        state = self._saver.load(learner, config.run)
        # A second time: building the networks has drawn numbers, as many as their sizes.
        self._seed_learner(learner, run_generation(config))
        learner.connect(self._context, old, policy=self._policy)
        link = learner.link
        link.publisher.exploit = exploit_of(config)
        link.replay.since, link.replay.rows_left_out = link.publisher.version + 1, 0
        self._learner, self._rows_trained = learner, 0
        return state

    def _seed(self, generation: int) -> int:
        """Seeds torch by the trial's own seed and its generation; returns the seed."""
        seed: int = self._context.config.session_config.seed
        made = component_seed(seed, f"learner/{generation}", 1)
        torch.manual_seed(made)
        return made

    def _seed_learner(self, learner: Learner, generation: int) -> None:
        """Seeds torch and the learner's own generator, with one seed."""
        learner.seed = self._seed(generation)
        learner.generator.manual_seed(learner.seed)

    def connect(self, version: int) -> None:
        """Connects the learner.

        Args:
            version: newest one that was ever published.
        """
        learner = self._learner
        learner.connect(self._context, policy=self._policy)
        learner.link.publisher.version = max(learner.link.publisher.version, version)
        learner.link.publisher.exploit = exploit_of(self._context.config)
        if self._league is not None:
            self._take_snapshot(self._league.restore)

    @property
    def learner(self) -> Learner:
        """The present learner; another one after :meth:`load`."""
        return self._learner

    @property
    def replay(self) -> ReplayClient:
        """The client of all replay shards."""
        return self._learner.link.replay

    @property
    def best_return(self) -> float | None:
        """Return of the best stored parameters, None if there are none."""
        return self._saver.best_return

    @property
    def flat_bytes(self) -> int:
        """Size of all parameters, in bytes."""
        return manifest_size_bytes(manifest_of(named_tensors(self._learner.module_dict())))

    @property
    def shards(self) -> int:
        """Number of replay shards."""
        shards: int = self._learner.learner_config.replay.replay_shards
        return shards

    @property
    def save_due(self) -> bool:
        """True if the next checkpoint is due."""
        return self._saver.due()

    def plan_counts(self) -> dict[str, Any]:
        """Returns the counts of the plan since the learner was built."""
        flow = self._learner.flow
        return {
            "rows_taken": sum(part.rows for part in flow.parts() if part.outside is not None),
            "rows_trained": self._rows_trained,
            "rows_left_out": self.replay.rows_left_out,
            "operators": flow.counts(),
        }

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths for the heartbeat."""
        return {
            "updates_per_second": self._updates.per_second(),
            "batches_waiting": float(self.replay.waiting),
            "iteration": float(self._learner.iteration),
        }

    def publish(self, reason: str, *, final: bool = False) -> None:
        """Publishes the current weights."""
        self._learner.publish_parameter(self._learner.iteration, reason, final=final)

    def learn(self) -> Learned:
        """Pulls the plan once.

        Raises:
            RunError: too many non-finite updates in a row; a restart returns to a checkpoint.
        """
        learner, waiting = self._learner, self.replay.waiting
        now = self._context.clock.now()
        try:
            item = learner.flow.pull()
        except StopIteration:
            return Learned(False, now, waiting, error=RunError("the execution plan has ended"))
        except Exception as error:  # noqa: BLE001 - the author's code, and some rows of a replay
            learner.pop_updates()
            learner.link.publish_owed(learner, failed=True)
            return Learned(True, now, waiting, error=self._set_aside(error))
        updates = learner.pop_updates()
        counted = [self._count(update, now) for update in updates]
        if self._league is not None and updates:
            self._take_snapshot(self._league.tick)
        learner.link.publish_owed(learner)
        wrong: Exception | None = learner.flow.standstill() if item is STALLED else None
        for update in updates:
            if update.metrics.get("skipped"):
                wrong = self._set_aside(NotFinite("a loss or gradient is not finite")) or wrong
            else:
                self._quarantine.clear()
        return Learned(item is not NOT_READY, now, waiting, counted, wrong)

    def _take_snapshot(self, take: Callable[[Learner], None]) -> None:
        try:
            take(self._learner)
        except CheckpointError as error:
            # A full disk must not end a run.
            self._context.event("checkpoint_failed", str(error))

    def _count(self, update: Trained, now: float) -> Update:
        """Counts an iteration, and publishes the new weights when it is time."""
        learner = self._learner
        if not self._updates.total:
            self._context.event("learning", f"iteration {learner.iteration}")
        learner.iteration += 1
        self._rows_trained += update.size
        self._updates.add()
        if self._summaries_due():
            learner.report_summaries(update)
        origin = update.batch.origin
        stamps = origin.stamps if origin is not None else {}
        columns = origin.columns if origin is not None else {}
        return Update(
            update.metrics,
            fresh_versions(columns) if "version" in columns else None,
            {**stamps, "taken": now} if stamps else {},
            learner.publish_parameter(learner.iteration),
            self._policy,
        )

    def _set_aside(self, error: Exception) -> Exception | None:
        """Stores the newest batch of replay; returns the first error if bad updates repeat.

        Raises:
            RunError: too many non-finite updates in a row; a restart returns to a checkpoint.
        """
        quarantine, iteration = self._quarantine, self._learner.iteration
        path = quarantine.add(self._learner.sampled, error, iteration, self.replay.counts())
        raised = not isinstance(error, NotFinite)
        if raised or quarantine.in_a_row == 1:
            kept = f"; its batch: {path}" if path is not None else ""
            self._context.event("bad_update", f"iteration {iteration}: {describe(error)}{kept}")
        first = quarantine.end()
        if isinstance(first, NotFinite):
            raise RunError(
                f"{quarantine.in_a_row} updates in a row had a loss or gradient that is not "
                "finite; lower the learning rate or look at the rewards"
            )
        return first

    def save(self, run_id: str, state: Mapping[str, Any]) -> Path | None:
        """Writes a checkpoint; returns its path, None if the disk failed.

        Args:
            run_id: run id of the run.
            state: state of the coordinator.
        """
        learner, context = self._learner, self._context
        context.busy(60.0, "saving a checkpoint")
        try:
            path = self._saver.save(learner.version, learner.env_steps, run_id, state)
        except CheckpointError as error:
            # A full disk must not end a run; the older checkpoint is still complete.
            context.event("checkpoint_failed", str(error))
            return None
        context.event("checkpoint", f"iteration {learner.iteration}")
        return path

    def save_best(self, flat: npt.NDArray[np.uint8], score: Mapping[str, Any]) -> None:
        """Stores the parameters of the best evaluation.

        Args:
            flat: as the evaluator returned them.
            score: the evaluation.
        """
        manifest = manifest_of(named_tensors(self._learner.module_dict()))
        try:
            self._saver.save_best(flat, manifest, score)
        except CheckpointError as error:
            self._context.event("checkpoint_failed", str(error))
