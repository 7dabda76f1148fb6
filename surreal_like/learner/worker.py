"""The side of a learner's process that learns, publishes, saves and sets bad batches aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from session.addons import load
from session.addons.hooks import LEARNER_LOG
from session.config import Config
from session.config.named_code import with_kept_plan
from session.config.sections import sections_of
from session.errors import CheckpointError, describe
from session.folder import RunFolder
from session.process.context import BUSY_SECONDS, Context, run_generation
from session.process.periodic import Every, Rate
from session.process.seeding import component_seed
from surreal_like.data.parameters import manifest_size_bytes
from surreal_like.data.policy_names import DEFAULT_POLICY, PolicyId, opponent_of, policies_of
from surreal_like.dataflow.items import Trained
from surreal_like.learner.bad_updates import (
    NEWEST,
    REPEATED,
    BadUpdates,
    NotFinite,
    Quarantine,
    words,
)
from surreal_like.learner.learner import Learner
from surreal_like.learner.saver import Saver
from surreal_like.network.flat import manifest_of, named_tensors
from surreal_like.replay.batch_requests import ReplayClient


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
        copying: seconds for which it waited for copies to the device; None: they are not made
            ahead.
    """

    had_batch: bool
    asked: float
    waiting: int = 0
    updates: Sequence[Update] = ()
    error: Exception | None = None
    copying: float | None = None


class LearnerWorker:
    """Learns from batches, publishes parameters, and saves checkpoints; counts nothing of a run.

    Args:
        context: context of this process.
        learner: not yet connected.
        folder: the run folder.
        policy: name of the policy.

    Attributes:
        learner: the present learner; another one after :meth:`load`.
        saver: writes and restores its checkpoints.
    """

    def __init__(
        self, context: Context, learner: Learner, folder: RunFolder, policy: str = DEFAULT_POLICY
    ) -> None:
        self._context, self.learner, self._policy = context, learner, policy
        config = context.config.session_config.checkpoint
        self._folder = folder
        run = context.config.get("run") or {}
        self.saver = Saver(
            learner, folder, config, context.clock, self._complain, run, policy=policy
        )
        self._updates = Rate(clock=context.clock.now)
        every = context.config.session_config.tensorplex.debug_summaries
        self._summaries_due = Every(calls=every, clock=context.clock.now)
        own = PolicyId(policy)
        self._quarantine = Quarantine(folder.quarantine / own.add(), policy)
        self._rows_trained = 0
        # Writes down what is learned from.
        self._log: Any = None
        # Ends of the shards at the newest checkpoint, see :meth:`ReplayClient.ends`.
        self._ends: Mapping[str, Sequence[int]] = {}
        place = folder.checkpoints / own.checkpoints
        kinds = ((opponent_of(each), each) for each in policies_of(context.config).values())
        # What serves the opponent that plays its parameters.
        self._beside: Any = next(
            (
                load(kind.learner)(place, each, self._complain)
                for kind, each in kinds
                if kind is not None and each[kind.key] == policy
            ),
            None,
        )

    def _complain(self, text: str) -> None:
        self._context.event("checkpoint_bad", text)

    def restore(self) -> Mapping[str, Any] | None:
        """Restores the newest checkpoint; returns its state, None if there is none."""
        state = self.saver.restore()
        self._ends = (state or {}).get("ends", {})
        if state is not None and "donor" in state:
            self._seed_learner(self.learner, run_generation(self._context.config))
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
        old = self.learner
        self._seed(run_generation(config))
        learner = type(old)(**sections_of(config))
        learner.policy_name = self._policy
        state = self.saver.load(learner, config.run)
        # A second time: building the networks has drawn numbers, as many as their sizes.
        self._seed_learner(learner, run_generation(config))
        learner.connect(self._context, old, policy=self._policy)
        link = learner.link
        link.publisher.exploit = exploit_of(config)
        link.replay.since, link.replay.rows_left_out = link.publisher.version + 1, 0
        self.learner, self._rows_trained = learner, 0
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
        learner = self.learner
        learner.connect(self._context, policy=self._policy)
        learner.link.publisher.version = max(learner.link.publisher.version, version)
        learner.link.publisher.exploit = exploit_of(self._context.config)
        loggers = (make(self._context, learner) for make in LEARNER_LOG)
        self._log = next(filter(None, loggers), None)
        if self._log is not None:
            learner.on_batch = self._log.on_batch
        if self._beside is not None:
            self._keep_parameters(self._beside.restore)

    def close(self) -> None:
        """Ends what it writes beside the checkpoints."""
        if self._log is not None:
            self._log.close()

    @property
    def replay(self) -> ReplayClient:
        """The client of all replay shards."""
        return self.learner.link.replay

    @property
    def flat_bytes(self) -> int:
        """Size of all parameters, in bytes."""
        return manifest_size_bytes(manifest_of(named_tensors(self.learner.module_dict())))

    def row_counts(self) -> dict[str, int]:
        """Returns the rows that the plan has trained, and left out, since the learner was built."""
        left_out = self.replay.rows_left_out
        return {"rows_trained": self._rows_trained, "rows_left_out": left_out}

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths for the heartbeat."""
        return {
            "updates_per_second": self._updates.per_second(),
            "batches_waiting": float(self.learner.link.waiting),
            "iteration": float(self.learner.iteration),
        }

    def publish(self, reason: str, *, final: bool = False) -> None:
        """Publishes the current weights."""
        self.learner.publish_parameter(self.learner.iteration, reason, final=final)

    def count(self, now: float) -> tuple[list[Update], Exception | None]:
        """Counts the updates that a pull has made, and publishes the new weights when it is time.

        Args:
            now: time of the pull [s].

        Returns:
            The updates, and an error with which the run cannot go on.

        Raises:
            BadUpdates: too many non-finite updates in a row; a restart returns to a checkpoint.
        """
        learner = self.learner
        wrong: Exception | None = None
        updates = learner.pop_updates()
        counted = [self._count(update, now) for update in updates]
        if self._beside is not None and updates:
            self._keep_parameters(self._beside.tick)
        learner.link.publish_owed(learner)
        for update in updates:
            if update.metrics.get("skipped"):
                wrong = self._set_aside(NotFinite("a loss or gradient is not finite")) or wrong
            else:
                self._quarantine.clear()
        return counted, wrong

    def fail(self, error: Exception) -> Exception | None:
        """Sets the newest batch aside, at which a pull has failed; results as of :meth:`count`."""
        self.learner.pop_updates()
        self.learner.link.publish_owed(self.learner, failed=True)
        return self._set_aside(error)

    def _keep_parameters(self, take: Callable[[Learner], None]) -> None:
        try:
            take(self.learner)
        except CheckpointError as error:
            # A full disk must not end a run.
            self._context.event("checkpoint_failed", str(error))

    def _count(self, update: Trained, now: float) -> Update:
        """Counts an iteration, and publishes the new weights when it is time."""
        learner = self.learner
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
            BadUpdates: too many non-finite updates in a row; a restart returns to a checkpoint.
        """
        quarantine, iteration = self._quarantine, self.learner.iteration
        path = quarantine.add(self.learner.sampled, error, iteration, self.replay.counts())
        raised = not isinstance(error, NotFinite)
        if raised or quarantine.in_a_row == 1:
            of = f"; rows of {words(quarantine.senders)}" if quarantine.senders else ""
            kept = f"; its batch: {path}" if path is not None else ""
            detail = f"iteration {iteration}: {describe(error)}{of}{kept}"
            self._context.event("bad_update", detail)
        self._fence()
        first = quarantine.end()
        if isinstance(first, NotFinite):
            raise BadUpdates(quarantine.explain())
        return first

    def _fence(self) -> None:
        """Fences the guests that stand in too many of the newest bad batches."""
        names = self._quarantine.find_repeated() & self.replay.guests() - self.replay.fenced
        for name in sorted(names):
            detail = f"guest {name} fenced: in {REPEATED} of the last {NEWEST} bad batches"
            self._context.event("fenced", detail, sender=name)
        if names:
            self.replay.fence(names)

    def roll_back(self) -> None:
        """Makes the shards remove the rows that came after the restored checkpoint."""
        self.replay.roll_back(self._ends)

    def save(self, run_id: str, state: Mapping[str, Any]) -> Path | None:
        """Writes a checkpoint; returns its path, None if the disk failed.

        Args:
            run_id: run id of the run.
            state: state of the coordinator.
        """
        learner, context = self.learner, self._context
        context.busy(BUSY_SECONDS, "saving a checkpoint")
        # Now they may be of rows for which updates are bad.
        now = {} if self._quarantine.in_a_row else self.replay.ends()
        ends = {**self._ends, **now}
        try:
            path = self.saver.save(learner.version, learner.env_steps, run_id, state, ends=ends)
        except CheckpointError as error:
            # A full disk must not end a run; the older checkpoint is still complete.
            context.event("checkpoint_failed", str(error))
            return None
        self._ends = ends
        context.event("checkpoint", f"iteration {learner.iteration}")
        return path

    def save_best(self, flat: npt.NDArray[np.uint8], score: Mapping[str, Any]) -> None:
        """Stores the parameters of the best evaluation.

        Args:
            flat: as the evaluator returned them.
            score: the evaluation.
        """
        manifest = manifest_of(named_tensors(self.learner.module_dict()))
        try:
            self.saver.save_best(flat, manifest, score)
        except CheckpointError as error:
            self._context.event("checkpoint_failed", str(error))
