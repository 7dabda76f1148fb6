"""Coordinator of a run: counts, judges, reports, ends it, and writes its result."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from session.addons.hooks import REPORTER
from session.atomic_file import write_atomically
from session.errors import describe
from session.folder import RunFolder
from session.launchers.registry import launcher_of
from session.newest_checkpoint import begins_anew
from session.process.context import BUSY_SECONDS, Context, run_generation
from session.process.periodic import Every
from session.show.overview import replay_capacity
from session.wire.one_way_sockets import Socket
from surreal_like.coordinator.component_reports import Monitor
from surreal_like.coordinator.control import Control, Flats, requests
from surreal_like.coordinator.final_evaluation import FinalEvaluation, why_none
from surreal_like.coordinator.learners import Learners
from surreal_like.coordinator.progress_file import ProgressLog
from surreal_like.coordinator.run_stats import RunStats
from surreal_like.coordinator.stop_rule import Shutdown, Verdict, end_before
from surreal_like.data.task import tasks_of
from surreal_like.experience.row_accounts import REMEDY, describe_too_old
from surreal_like.learner.bad_updates import BadUpdates
from surreal_like.learner.worker import Learned, Update

_JUDGE_SECONDS = 0.1
_ENDING_SHARE = 0.6
# Near the end of a budget of environment steps they are counted as often as they can change.
_LAST_COUNTS_SECONDS = 0.001
# In one thread a second is a thousand rounds: the next task is asked for more than once in it.
_TASK_SECONDS = 0.02


class RunCoordinator:
    """Owns a run: it alone decides when the run ends, and writes its result.

    It knows no network and no optimiser: numbers of updates come in dictionaries, and weights are
    the worker's business. One class, because each event may be the one that ends the run.

    Args:
        context: context of its process.
        folder: the run folder.
        learners: the side that learns.
        restored: the state of the checkpoint that the learners has restored, None without one.

    Attributes:
        context, folder, learners: the same.
        record: statistics of the run.
        monitor: reads what the components report.
        verdict: outcome of the run, None while it goes on.
        done: True once the result is written.
    """

    def __init__(
        self,
        context: Context,
        folder: RunFolder,
        learners: Learners,
        restored: Mapping[str, Any] | None,
    ) -> None:
        session, clock = context.config.session_config, context.clock
        self.context, self.folder, self.learners = context, folder, learners
        self._session = session
        self._record_file = folder.checkpoints / "learner" / "record.json"
        self.record = RunStats(context.config, clock)
        self.verdict: Verdict | None = None
        self.done = self._begins = False
        self._donor_steps = 0
        self._restore(restored)
        self._tasks = tasks_of(context.config.env_config)
        if self._tasks is not None:
            self._tasks.check()
        self._report = ProgressLog(context, self.record, folder.progress)
        self._judge_due = Every(seconds=_JUDGE_SECONDS, clock=clock.now)
        self.monitor = Monitor(context, self.record, learners)
        self._old_reported = False
        self._disk_failing = False
        self._ending: Shutdown | None = None
        self._final = FinalEvaluation(session.stop.eval_episodes)
        # Reports to what runs this run as one of many, and obeys its answers.
        self._reporter: Any = next(filter(None, (make(self) for make in REPORTER)), None)
        every = session.learner.report_seconds
        every = min(every, _TASK_SECONDS) if self.runs_alone else every
        self._task_due = Every(seconds=every, clock=clock.now)
        self._last_counts_due = Every(seconds=_LAST_COUNTS_SECONDS, clock=clock.now)
        # Environment steps at the last regular look at the stop rule, and since the one before.
        self._steps_seen = self._steps_between = 0

    def _restore(self, state: Mapping[str, Any] | None) -> None:
        learners, record, event = self.learners, self.record, self.context.event
        saved = state.get("record") if state is not None else None
        donor = state if state is not None and "donor" in state else None
        if donor is not None:
            complaint = record.restore(self._record_file, None)
            state = None
        else:
            complaint = record.restore(self._record_file, learners.learner.iteration, saved)
        record.reach(self.folder.last_progress(), None if donor else learners.learner.iteration)
        if complaint:
            event("checkpoint_bad", complaint)
        self.restored_version = max(
            record.restored_version, state["version"] if state is not None else 0
        )
        if donor is not None:
            self._begins, self._donor_steps = True, donor["env_steps"]
            self._on_donor(donor, record.generation, self.restored_version + 1)
        if state is None and donor is None and record.iterations:
            event("begins_anew", begins_anew(record.lost_iterations))
        elif state is not None and "start_from" in state:
            what = ", ".join(state.get("parts", ())) or "parameters"
            event("restored", f"{what} of {state['start_from']}; optimisers begin anew")
        elif state is not None:
            event("restored", f"iteration {learners.learner.iteration}")

    def _on_donor(self, state: Mapping[str, Any], generation: int, version: int) -> None:
        """Goes on from the checkpoint of a donor: its time, but the run's own counts.

        Args:
            state: state of that checkpoint.
            generation: generation of this run from now on.
            version: that is published next.
        """
        self.record.load(state["record"]["times"], generation, version)
        # That of the weights; evaluations of older versions had another one.
        task = state["record"].get("task", self.record.task)
        self.record.begin_task(task["number"], task["settings"], version - 1)
        iteration = self.learners.learner.iteration
        self.context.event("restored", f"iteration {iteration} of a donor, generation {generation}")

    def start(self) -> None:
        """Opens the sockets, reports, and publishes the first weights."""
        wire, learners = self.context.wire, self.learners
        schemas = requests(learners.flat_bytes, self._session.evaluator.mode)
        self._control = Control(
            wire.router("learner.control", schemas),
            evaluated=self._add_evaluation,
            stop=self._stop,
            save=self.save,
            status=lambda: self._report.line,
        )
        self.monitor.connect()
        self._restore_learned()
        if self.record.rolls_back:
            learners.roll_back()
        if self._begins:
            self.save()
        self.report()
        learners.set_task(self.record.task)
        self._choose_task()
        if self.ending:
            return
        learners.publish("start")
        self.on_publication()
        ended = end_before(
            self.context.config, self.folder.read_result(), self.record.restored_part
        )
        if ended is not None:
            result = self.folder.read_result() or {}
            none = result.get("final_eval_reason") or "the run had ended before"
            self.end(ended, none=none, final=result.get("final_eval"))

    def _restore_learned(self) -> None:
        """Restores the environment steps that the parameters have learned from."""
        learners, record = self.learners, self.record
        # A run that began earlier has not counted them.
        earlier = {"shards": {}, "more": int(record.times()["env_steps"])}
        learners.restore_learned(record.learned or earlier)
        if self._begins:
            learners.set_learned_steps(self._donor_steps)

    @property
    def ending(self) -> bool:
        """True once the end of the run has begun."""
        return self._ending is not None

    @property
    def learns(self) -> bool:
        """True while the learners may learn: the run goes on and is not paused."""
        return self._ending is None and not self._control.paused

    def sockets(self) -> list[Socket]:
        """Returns the sockets of control and of the parameter server."""
        return [self._control.socket, self.monitor.socket]

    def tick_control(self) -> bool:
        """Replies to one request; returns True if there was one."""
        return self._control.tick()

    def tick(self) -> None:
        """Judges and reports when it is due."""
        if self._reporter is not None:
            self._reporter.tick()
        self.record.rolls_back = self.learners.rolls_back
        if self._judge_due():
            self.judge()
            steps = self.record.accounts.env_steps
            self._steps_between, self._steps_seen = steps - self._steps_seen, steps
        elif self._is_near_budget and self._last_counts_due():
            self.learners.ask_counts()
            self.judge()
        if self._report.due():
            self.report()
        if self._tasks is not None and self._task_due():
            self.learners.ask_counts()
            self.count()
            self._choose_task()

    def _choose_task(self) -> None:
        """Begins the next task if it is time; an error of the user's code ends the run."""
        if self._tasks is None or self._ending is not None:
            return
        try:
            if self._tasks.choose(self.context, self.record, self.learners):
                self._save_record()
        except Exception as error:  # noqa: BLE001 - the user's code may raise any error
            self.fail(error, f"env_config.{self._tasks.key}")

    def tick_end(self) -> None:
        """Continues the end of the run, and writes the result when all rows are accounted for."""
        ending, learners = self._ending, self.learners
        if ending is None:
            return
        if self._judge_due():
            learners.drain()
            self._final.on_beats(self.monitor.beats().values())
        self.count()
        now, is_final = self.context.clock.now(), self.record.accounts.is_final
        if not (ending.over(now, learners.counts(), is_final) and self._final.over(now)):
            return
        assert self.verdict is not None  # an ending begins with one
        self.report()
        self._write_result(self.verdict)
        self.done = True

    def on_learned(self, learned: Learned) -> None:
        """Adds one attempt of the learners to learn."""
        self._report.add_batch(learned.had_batch, learned.asked, learned.waiting, learned.copying)
        for update in learned.updates:
            self._on_update(update)
        if learned.error is not None:
            self.fail(learned.error)
        if learned.updates and self.record.iterations == self._session.stop.iterations:
            self.judge()
        if learned.updates and self._reporter is not None:
            self._reporter.on_updates()

    def ends_while_waiting(self) -> bool:
        """Goes on with heartbeats and commands while a report waits; True if this learner ends."""
        if self.runs_alone:
            # A serial run stands still as a whole.
            return False
        self.context.pulse()
        self._control.tick()
        return self.ending or self.context.stopping

    @property
    def line(self) -> Mapping[str, Any]:
        """The newest line of progress."""
        return self._report.line

    @property
    def doing(self) -> str:
        """Present wait, for the heartbeat; empty: none."""
        if self._reporter is not None and self._reporter.doing:
            return str(self._reporter.doing)
        plays = self.ending and not self._final.over(self.context.clock.now())
        return "the last parameters are evaluated" if plays else ""

    def take_over(self) -> None:
        """Takes over a donor's checkpoint, with the settings that lie in the run folder."""
        config, learners = self.folder.read_config(), self.learners
        self.context.busy(BUSY_SECONDS, "taking over another trial")
        donor = learners.load(config)
        self._on_donor(donor, run_generation(config), learners.learner.version + 1)
        learners.set_task(self.record.task)
        learners.set_learned_steps(donor["env_steps"])
        self._report.clear_updates()
        learners.publish("another trial was taken over")
        self.on_publication()

    def _on_update(self, update: Update) -> None:
        record = self.record
        self._report.add_update(update.metrics, update.policy)
        record.iterations += 1
        if update.versions is not None:
            iteration = self.learners.by_policy()[update.policy].iteration
            record.lag_of(update.policy).add_batch(update.versions, iteration)
        if update.stamps:
            record.lag.add_stamps(update.stamps)
        if update.published:
            self.on_publication()

    def on_publication(self) -> None:
        """Records how many updates the newest version of each policy has had."""
        for policy, learner in self.learners.by_policy().items():
            self.record.lag_of(policy).add_publication(learner.version, learner.iteration)

    def judge(self) -> None:
        """Ends the run if the stop rule says so."""
        self.count()
        verdict = self.record.verdict()
        if verdict is not None and verdict.status == "failed" and self.verdict is None:
            why = self.monitor.find_wait()
            remedy = "raise session_config.stop, or lower learner_config.replay.min_size"
            verdict = replace(verdict, reason=f"{verdict.reason}: {why or remedy}")
        if verdict is not None:
            self.end(verdict)

    @property
    def _is_near_budget(self) -> bool:
        """True if the budget of environment steps may be used before the next regular look."""
        budget = self._session.stop.env_steps
        steps = self.record.accounts.env_steps
        # Their rate may have doubled since the last regular look.
        return budget is not None and budget - steps <= 2 * self._steps_between

    @property
    def _is_advised(self) -> bool:
        """True if the number of agents limits how fast the run learns."""
        return self.learns and bool(self.record.iterations) and not self.runs_alone

    @property
    def runs_alone(self) -> bool:
        """True if all components of the run share this thread."""
        return launcher_of((self.context.config.get("run") or {}).get("launcher", "")).one_thread

    def fail(self, error: Exception, what: str = "learner") -> None:
        """Ends the run as failed, for an error of ``what``: a restart would repeat it."""
        if self.runs_alone:
            # The error ends a serial run with its traceback, for debugging.
            raise error
        goal_met = False if self.record.judge.has_goal else None
        self.end(Verdict("failed", goal_met, f"{what}: {describe(error)}"))

    def go_back(self, error: BadUpdates) -> None:
        """Ends this process, so that the next one goes on from the newest checkpoint.

        Rows that came after it are removed then. If that was done before, and learning has come
        neither further since nor to a new checkpoint, the run fails.

        Raises:
            BadUpdates: the given one.
        """
        record, iteration = self.record, self.learners.learner.iteration
        if record.bad_at is not None and iteration <= record.bad_at:
            self.fail(error)
            return
        if not self.runs_alone:
            record.bad_at, record.rolls_back = iteration, True
            self._save_record()
        raise error

    def end(
        self, verdict: Verdict, *, none: str = "", final: Mapping[str, Any] | None = None
    ) -> None:
        """Begins the end of the run; does nothing if it has begun.

        Args:
            verdict: outcome of the run.
            none: reason for which its last parameters are not evaluated.
            final: evaluation that has judged them before.
        """
        if self.verdict is not None:
            return
        self.verdict, self.record.ended_seconds = verdict, self.record.wall_seconds
        context, learners = self.context, self.learners
        context.event("ending", verdict.reason)
        self.save()
        final = final or self._met_by
        none = none or why_none(verdict, self._session)
        seconds = 0.0 if none or final else float(self._session.evaluator.final_seconds)
        learners.publish_end(verdict.reason, resumable=verdict.resumable, final_seconds=seconds)
        learners.drain()
        now = context.clock.now()
        timeout = 0.0 if context.orphaned else _ENDING_SHARE * self._session.launcher.grace_seconds
        if seconds:
            until, digests = now + timeout + seconds, learners.digests()
            self._final.begin(learners.published, digests, until=until, seconds=seconds)
        else:
            self._final.skip(none, final)
        self.monitor.set_interval(_JUDGE_SECONDS)
        self._ending = Shutdown(now, timeout_seconds=timeout, shards=learners.shards)

    @property
    def _met_by(self) -> Mapping[str, Any] | None:
        """The evaluation that has met the goal, if it was of the present parameters."""
        met, iteration = self.record.judge.met_by, self.learners.learner.iteration
        # Of several policies it does not say how many updates each of them has had.
        if met is None or self.record.policies or met["iteration"] != iteration:
            return None
        (digest,) = self.learners.digests().values()
        return {**met, "hash": digest}

    def save(self) -> Path | None:
        """Saves the run's state with a checkpoint; returns its path, None if the disk failed."""
        record, learners = self.record, self.learners
        state = record.state(learners.learner.iteration, learners.learner.version)
        path = learners.save(record.run_id, state)
        if path is not None:
            record.bad_at = None
            self._write_result(Verdict("running", None, ""))
        return path

    def report(self, number: int | None = None) -> None:
        """Writes a line of progress.

        Args:
            number: number of the report to a tuning, None for a line of the run's own.
        """
        learners, record = self.learners, self.record
        self.count()
        record.plan = learners.plan_counts()
        for policy, stats in record.policies.items():
            learner = learners.by_policy()[policy]
            stats.iteration, stats.version = learner.iteration, learner.version
        # Saved before it is reported: a successor must not start below reported numbers.
        self._save_record()
        self._report.write(
            learners.learner.iteration,
            learners.learner.version,
            list(learners.counts().values()),
            agents=self.monitor.count_agents() if self._is_advised else None,
            standstill=self.monitor.explain_standstill(learns=self.learns),
            report=number,
        )
        self.monitor.on_line(self._report.line)
        if (old := describe_too_old(self._report.line)) and not self._old_reported:
            self._old_reported = True
            self.context.event("too_old", f"{old} were too old to be learned from: {REMEDY}")

    def _save_record(self) -> None:
        learner = self.learners.learner
        with self._writing():
            self._record_file.parent.mkdir(exist_ok=True)
            self.record.save(self._record_file, learner.iteration, learner.version)

    def close(self) -> None:
        """Writes the last lines of progress, and the counts so far if an error ends the run."""
        try:
            if self._ends_early:
                self.report()
                self._write_result(Verdict("running", None, ""))
        finally:
            self._report.close()
            if self._reporter is not None:
                self._reporter.close()

    @property
    def _ends_early(self) -> bool:
        """True without a verdict, unless another learner goes on or this one was killed."""
        killed = not self.context.wire.sockets
        return self.verdict is None and not self.context.leaves and not killed

    def count(self) -> None:
        """Adds the newest counts and episodes to the statistics."""
        record, learners = self.record, self.learners
        record.add_counts(learners.counts())
        while record.losses:
            self.context.event("rows_lost", record.losses.pop(0))
        record.add_episodes(learners.pop_finished(), learners.learner.own_metrics)
        record.judge_training()
        record.learned = learners.save_learned()

    def _stop(self, reason: str, status: str) -> None:
        if self.verdict is not None and status not in ("stopped", self.verdict.status):
            # Of a run that ends already a user, or its launcher, does not want to wait for more.
            self._final.skip(reason if reason == status else f"{status}: {reason}")
        goal_met = False if self.record.judge.has_goal else None
        self.end(Verdict(status, goal_met, reason))

    def _add_evaluation(self, evaluation: Mapping[str, Any], flats: Flats) -> dict[str, Any]:
        judge, mode = self.record.judge, evaluation["mode"]
        judges = judge.judges(mode)
        seen = {**evaluation, "wall_seconds": self.record.wall_seconds}
        # A budget, too, ends the run at once: what comes later confirms no goal.
        late = evaluation["confirm"] and self.verdict is not None and not self.verdict.goal_met
        final = judges and self._final.add(seen)
        confirm = False if late else judge.on_evaluation(seen) and not final
        if judges and not evaluation["confirm"]:
            self.learners.save_best(flats, seen)
        self.context.event(
            "evaluation",
            f"mean return {evaluation['mean_return']:.2f} over {evaluation['episodes']} episodes"
            + ("" if judges else f", {mode}")
            + (", too late: the run was ending" if late else "")
            + (" (again)" if evaluation["confirm"] else "")
            + (", of the last parameters" if final else ""),
            mode=mode,
            iteration=evaluation["iteration"],
            env_steps=evaluation["env_steps"],
            mean_return=evaluation["mean_return"],
            episodes=evaluation["episodes"],
        )
        self._report.add_evaluation(seen, judges=judges)
        if self._ending is None:
            self.judge()
        return {"confirm": confirm, "best": self.learners.best_return}

    def status(self) -> dict[str, float]:
        """Returns the numbers of the run for the heartbeat, by the newest line of progress."""
        line = self._report.line
        wanted = line["wanted"]["agents"]
        numbers = {
            "run_over": self.done,
            "env_steps_total": line["env_steps"],
            "updates_total": line["iterations"],
            "rows_dropped_total": line["experience"]["dropped"],
            "learner_waiting_ratio": line["waiting_share"],
            "senders_waiting_ratio": line["senders_waiting_share"],
            "lag_versions": line["lag"]["mean_versions"],
            "replay_fill_ratio": line["replay"]["size"] / replay_capacity(self.context.config),
            "wanted": wanted,
            "wanted_own": None if wanted is None else max(0, wanted - self.monitor.guests),
        }
        return {name: float(value) for name, value in numbers.items() if value is not None}

    def _write_result(self, verdict: Verdict) -> None:
        result = self.record.result(verdict, self.learners.learner.iteration)
        result |= {"latency": self.record.lag.latency(), **self._final.result()}
        with self._writing():
            write_atomically(self.folder.result, json.dumps(result, indent=2) + "\n")
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
                self.context.event("not_written", str(error))
            self._disk_failing = True
        else:
            self._disk_failing = False
