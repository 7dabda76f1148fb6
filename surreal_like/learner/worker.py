"""Service of the learner process: learns, publishes, counts, saves, and ends the run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from session.context import Context
from session.errors import CheckpointError, RefusedError, RunError, describe
from session.folder import RunFolder, write_atomically
from session.heartbeat import read_beats
from session.periodic import Every, Rate
from session.service import START_AGAIN, Service
from session.wire.sockets import Socket
from surreal_like.data.parameters import manifest_size_bytes
from surreal_like.learner.base import Learner
from surreal_like.learner.control import Control, Flat, requests
from surreal_like.learner.lag import fresh_versions
from surreal_like.learner.metrics import checked_metrics
from surreal_like.learner.quarantine import NotFinite, Quarantine
from surreal_like.learner.report import Report
from surreal_like.learner.run_stats import RunStats
from surreal_like.learner.saver import Saver
from surreal_like.learner.shutdown import Shutdown, ended_before
from surreal_like.learner.standstill import Standstill, explain, reported, shortest
from surreal_like.learner.stop_rule import Verdict
from surreal_like.network.flat import manifest_of, named_tensors
from surreal_like.ps.schemas import ANSWERS
from surreal_like.replay.client import Sampled
from surreal_like.resume import begins_anew

_JUDGE_SECONDS = 0.1
_ACCOUNTS_SECONDS = 0.25
_ENDING_SHARE = 0.6


class LearnerService(Service):
    """Owns the run: only the learner decides when it ends, and writes its result.

    Args:
        context: of this process.
        learner: not yet connected.
        folder: the run folder.
    """

    def __init__(self, context: Context, learner: Learner, folder: RunFolder) -> None:
        self._context = context
        self._learner = learner
        self._folder = folder
        session, clock = context.config.session_config, context.clock
        self._session = session
        self._record = RunStats(context.config, clock)
        self._saver = Saver(learner, folder, session.checkpoint, clock, self._complain)
        self._restore()
        learner.connect(context)
        learner.publisher.version = max(learner.publisher.version, self._version)
        self._control = Control(
            context.wire.router(
                "learner.control", requests(self._flat_bytes(), session.evaluator.mode)
            ),
            evaluated=self._evaluated,
            save=self._save,
            stop=self._stop,
            status=self._status,
        )
        self._ps = context.wire.dealer("ps.requests", ANSWERS)
        self._report = Report(context, self._record, folder.progress)
        self._judge_due = Every(seconds=_JUDGE_SECONDS, clock=clock.now)
        self._accounts_due = Every(seconds=_ACCOUNTS_SECONDS, clock=clock.now)
        self._updates = Rate(clock=clock.now)
        bad = context.config.learner_config.max_bad_updates
        self._quarantine = Quarantine(folder.quarantine, bad)
        self._standstill = Standstill(clock.now())
        # Sender with incarnation -> the account that it reported to the parameter server.
        self._told: Mapping[str, Mapping[str, Any]] = {}
        self._disk_failing = False
        self._verdict: Verdict | None = None
        self._ending: Shutdown | None = None
        self._done = False
        self._left = False
        self._tell()
        learner.publish_parameter(learner.iteration, "start")
        self._note_publication()
        ended = ended_before(context.config, folder.read_result(), self._record.restored_part)
        if ended is not None:
            self._begin_ending(ended)

    def _flat_bytes(self) -> int:
        return manifest_size_bytes(manifest_of(named_tensors(self._learner.module_dict())))

    def _restore(self) -> None:
        state = self._saver.restore()
        learner, record, event = self._learner, self._record, self._context.event
        saved = state.get("record") if state is not None else None
        if complaint := record.restore(self._saver.record, learner.iteration, saved):
            self._complain(complaint)
        self._version = max(record.restored_version, state["version"] if state is not None else 0)
        learner.env_steps = record.accounts.env_steps
        if state is None and record.iterations:
            event("begins_anew", begins_anew(record.lost_iterations))
        elif state is not None and "start_from" in state:
            event("restored", f"parameters of {state['start_from']}; optimisers begin anew")
        elif state is not None:
            event("restored", f"iteration {learner.iteration}")

    def _complain(self, text: str) -> None:
        self._context.event("checkpoint_bad", text)

    def tick(self) -> bool:
        """Learns from one batch if available, and does the work that is due."""
        learner = self._learner
        busy = self._control.tick()
        busy |= self._tick_replay(ask=self._ending is None and not self._control.paused)
        if learner.tick_publisher():
            self._note_publication()
        self._take_accounts()
        if self._accounts_due():
            self._ps.send("accounts")
        if self._ending is not None:
            self._end(self._ending)
            return busy
        if not self._control.paused:
            busy |= self._learn()
        if self._judge_due():
            self._judge()
        if self._report.due():
            self._tell()
        if self._saver.due():
            self._save()
        return busy

    def _tick_replay(self, *, ask: bool) -> bool:
        try:
            return self._learner.tick_replay(ask=ask)
        except RunError as error:
            self._fail(error)
            return False

    def _fail(self, error: Exception) -> None:
        """Ends the run as failed: a restart would repeat the error."""
        if (self._context.config.get("run") or {}).get("launcher") == "serial":
            # The serial launcher passes exceptions on, for debugging.
            raise error
        goal_met = False if self._record.judge.has_goal else None
        self._begin_ending(Verdict("failed", goal_met, f"learner: {describe(error)}"))

    def _learn(self) -> bool:
        sampled = self._learner.replay.next()
        now = self._context.clock.now()
        self._report.add_batch(sampled is not None)
        if sampled is None:
            return False
        learner, record = self._learner, self._record
        try:
            metrics = checked_metrics(learner.learn(learner.to_batch(sampled)), learner.learn)
        except Exception as error:  # noqa: BLE001 - the author's code, and some rows of a replay
            self._on_bad_update(sampled, error)
            return True
        if not self._updates.total:
            self._context.event("learning", f"iteration {learner.iteration}")
        self._report.add_update(metrics)
        learner.iteration += 1
        record.iterations += 1
        self._updates.add()
        if "version" in sampled.columns:
            record.lag.add_batch(fresh_versions(sampled.columns), learner.iteration)
        if sampled.stamps:
            record.lag.add_stamps({**sampled.stamps, "taken": now})
        if learner.publish_parameter(learner.iteration):
            self._note_publication()
        if metrics.get("skipped"):
            self._on_bad_update(sampled, NotFinite("a loss or gradient is not finite"))
        else:
            self._quarantine.clear()
        if record.iterations == self._session.stop.iterations:
            self._judge()
        return True

    def _on_bad_update(self, sampled: Sampled, error: Exception) -> None:
        """Stores the batch and continues without it, unless bad updates repeat.

        Raises:
            RunError: too many non-finite updates in a row; a restart returns to a checkpoint.
        """
        quarantine, iteration = self._quarantine, self._learner.iteration
        path = quarantine.add(sampled, error, iteration)
        raised = not isinstance(error, NotFinite)
        if raised or quarantine.in_a_row == 1:
            kept = f"; its batch: {path}" if path is not None else ""
            self._context.event("bad_update", f"iteration {iteration}: {describe(error)}{kept}")
        first = quarantine.end()
        if isinstance(first, NotFinite):
            raise RunError(
                f"{quarantine.in_a_row} updates in a row had a loss or gradient that is not "
                "finite; lower the learning rate or look at the rewards "
                "(learner_config.max_bad_updates)"
            )
        if first is not None:
            self._fail(first)

    def _note_publication(self) -> None:
        learner = self._learner
        self._record.lag.add_publication(learner.publisher.version, learner.iteration)

    def _take_accounts(self) -> None:
        while (answer := self._ps.receive()) is not None:
            if answer.kind == "refused":
                # A newer learner has taken over; two learners must not write to one folder.
                raise RefusedError(str(answer.fields.get("reason", "refused without a reason")))
            self._told = answer.fields.get("accounts", {})
            for key, account in self._told.items():
                self._record.accounts.add_sender(key, account)

    def _count(self) -> None:
        record, replay = self._record, self._learner.replay
        record.add_counts(replay.counts())
        record.add_episodes(replay.pop_finished(), self._learner.own_metrics)
        record.judge_training()
        self._learner.env_steps = record.accounts.env_steps

    def _judge(self) -> None:
        self._count()
        verdict = self._record.judge.verdict(self._record.progress())
        if verdict is not None:
            self._begin_ending(verdict)

    def _begin_ending(self, verdict: Verdict) -> None:
        if self._verdict is not None:
            return
        self._verdict = verdict
        context, learner = self._context, self._learner
        context.event("ending", verdict.reason)
        self._save()
        learner.publish_parameter(learner.iteration, verdict.reason, final=True)
        learner.replay.drain()
        timeout = 0.0 if context.orphaned else _ENDING_SHARE * self._session.launcher.grace_seconds
        shards = learner.learner_config.replay.replay_shards
        self._ending = Shutdown(context.clock.now(), timeout_seconds=timeout, shards=shards)

    def _end(self, ending: Shutdown) -> None:
        replay = self._learner.replay
        if self._judge_due():
            replay.drain()
            self._ps.send("accounts")
        self._count()
        final = {k: s.final for k, s in self._record.accounts.senders.items()}
        if not ending.over(self._context.clock.now(), replay.counts(), final):
            return
        assert self._verdict is not None  # an ending begins with one
        self._tell()
        self._write_result(self._verdict)
        self._done = True

    def drain(self) -> None:
        """Handles SIGTERM: ends the run as interrupted, or leaves it to the next process."""
        if self._session.launcher.on_sigterm == "resume" and not self._context.orphaned:
            self._leave()
        else:
            self._begin_ending(Verdict("interrupted", None, "the learner was told to stop"))

    def _leave(self) -> None:
        """Saves the state for the next process; a shutdown that has begun is completed first."""
        if self._verdict is None:
            self._context.event("leaving", "saved, to be started again")
            self._save()
            self._tell()
            self._left = True

    @property
    def done(self) -> bool:
        """True once the result is written, or the process leaves without one."""
        return self._done or self._left

    @property
    def exit_code(self) -> int:
        """0, unless another process has to continue the run."""
        resumes = self._session.launcher.on_sigterm == "resume"
        return START_AGAIN if resumes and not self._done else 0

    def wait_on(self) -> list[Socket]:
        """Returns the sockets of batches, control and parameter server."""
        return [*self._learner.replay.sockets(), self._control.socket, self._ps]

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths for the heartbeat."""
        return {
            "updates_per_second": self._updates.per_second(),
            "batches_waiting": float(self._learner.replay.waiting),
            "iteration": float(self._learner.iteration),
        }

    def close(self) -> None:
        """Writes the last lines of progress."""
        self._report.close()

    def _stop(self, reason: str, interrupted: bool) -> None:
        status = "interrupted" if interrupted else "stopped"
        goal_met = False if self._record.judge.has_goal else None
        self._begin_ending(Verdict(status, goal_met, reason))

    def _status(self) -> dict[str, Any]:
        return self._report.line

    def _save(self) -> str:
        learner, context = self._learner, self._context
        context.busy(60.0, "saving a checkpoint")
        try:
            version, record = learner.publisher.version, self._record
            path = self._saver.save(
                version,
                learner.env_steps,
                record.run_id,
                record.state(learner.iteration, version),
            )
        except CheckpointError as error:
            # A full disk must not end a run; the older checkpoint is still complete.
            context.event("checkpoint_failed", str(error))
            return ""
        context.event("checkpoint", f"iteration {learner.iteration}")
        self._write_result(Verdict("running", None, ""))
        return str(path)

    def _evaluated(self, evaluation: Mapping[str, Any], flat: Flat | None) -> dict[str, Any]:
        judge = self._record.judge
        best, mode = self._saver.best_return, evaluation["mode"]
        judges = judge.judges(mode)
        seen = {**evaluation, "wall_seconds": self._record.wall_seconds}
        confirm = judge.on_evaluation(seen)
        better = best is None or evaluation["mean_return"] > best
        if judges and better and not evaluation["confirm"]:
            self._save_best(seen, flat)
        self._context.event(
            "evaluation",
            f"mean return {evaluation['mean_return']:.2f} over {evaluation['episodes']} episodes"
            + ("" if judges else f", {mode}")
            + (" (again)" if evaluation["confirm"] else ""),
            mode=mode,
            iteration=evaluation["iteration"],
            env_steps=evaluation["env_steps"],
            mean_return=evaluation["mean_return"],
            episodes=evaluation["episodes"],
        )
        self._report.add_evaluation(seen, judges=judges)
        if self._ending is None:
            self._judge()
        return {"confirm": confirm, "best": self._saver.best_return}

    def _save_best(self, score: Mapping[str, Any], flat: Flat | None) -> None:
        if flat is None:
            return
        manifest = manifest_of(named_tensors(self._learner.module_dict()))
        try:
            self._saver.save_best(flat, manifest, score)
        except CheckpointError as error:
            self._context.event("checkpoint_failed", str(error))

    def _tell(self) -> None:
        learner, record = self._learner, self._record
        self._count()
        # Saved before it is reported: a successor must not start below reported numbers.
        with self._writing():
            self._saver.record.parent.mkdir(exist_ok=True)
            record.save(self._saver.record, learner.iteration, learner.publisher.version)
        counts = learner.replay.counts().values()
        self._report.write(
            learner.iteration,
            learner.publisher.version,
            counts,
            standstill=self._look_for_standstill(),
        )

    def _look_for_standstill(self) -> str | None:
        """Explains a standstill, None without one; also sends an event at growing intervals."""
        record, now = self._record, self._context.clock.now()
        accounts = record.accounts
        numbers = {
            "env_steps": accounts.env_steps,
            "updates": record.iterations,
            "inserted": accounts.rows().inserted,
        }
        stood = self._standstill.look(now, numbers)
        if not stood or self._ending is not None or self._control.paused:
            self._standstill.due(None)
            return None
        beats = read_beats(self._context.folder.alive) if self._context.folder is not None else {}
        statuses = {
            **reported(self._told, self._learner.replay.counts()),
            **{name: beat.status for name, beat in beats.items()},
            self._context.name: self.status(),
        }
        why = explain(stood, statuses)
        if self._standstill.due(None if why is None else shortest(stood)):
            self._context.event("standstill", why or "")
        return why

    def _write_result(self, verdict: Verdict) -> None:
        result = self._record.result(verdict, self._learner.iteration)
        result["latency"] = self._record.lag.latency()
        with self._writing():
            write_atomically(self._folder.result, json.dumps(result, indent=2) + "\n")
        if self._session.at_end == "idle" and verdict.status != "running":
            # After the end of this process, other machines can only read its output.
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Catches errors of a full disk, which must not end a run; reports the first one."""
        try:
            yield
        except OSError as error:
            if not self._disk_failing:
                self._context.event("not_written", str(error))
            self._disk_failing = True
        else:
            self._disk_failing = False
