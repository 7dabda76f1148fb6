"""Service of the evaluator process: evaluates new versions and reports scores to the learner."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from session.addons.hooks import FILM
from session.config import Config
from session.process.context import Context
from session.process.periodic import Every
from session.process.service import Service
from session.show.progress import mode_name
from session.wire.one_way_sockets import Socket
from surreal_like.agent.acting import Acting
from surreal_like.agent.agent import Agent
from surreal_like.agent.evaluation import ANSWERS as SCORED
from surreal_like.agent.evaluation import Evaluation, EvaluationReporter, num_streams, score_of
from surreal_like.agent.fetcher import Fetcher, agent_for
from surreal_like.agent.player import MakePlayer, Player
from surreal_like.agent.run_link import AgentLink
from surreal_like.agent.step_pulse import StepAbandonedError, StepPulse
from surreal_like.data.episodes import mean_metrics
from surreal_like.data.parameters import Parameters
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.env.task_feed import TaskFeed

_STEPS_PER_TICK = 8
_TICK_SECONDS = 0.004
_POLL_PARAMETERS_SECONDS = 0.1
# Longer evaluations show their progress.
_LONG_SECONDS = 5.0
# Longer evaluations get advice, once.
_TOO_LONG_SECONDS = 60.0
_LOOK_SECONDS = 1.0


class EvaluatorService(Service):
    """Evaluates one version at a time.

    The environments are seeded once and continue from episode to episode, so no episode is
    repeated; a restarted evaluator and every other evaluator have other seeds.

    Args:
        context: context of this process.
        agent: agent in an evaluation mode; not yet attached.
        make: makes what lets it play, with all policies that play with it.
        policy: name of the agent's policy.
    """

    def __init__(
        self,
        context: Context,
        agent: Agent,
        make: MakePlayer,
        policy: str = DEFAULT_POLICY,
    ) -> None:
        config, clock = context.config, context.clock
        session = config.session_config
        self._context = context
        self._agent, self._policy = agent, policy
        link = AgentLink(context, policy=policy)
        agent.attach(link)
        self._acting = Acting(agent)
        self._stack = ExitStack()
        self._episodes: int = session.stop.eval_episodes
        streams = num_streams(session, self._episodes)
        self._film: Any = next(filter(None, (make_film(context) for make_film in FILM)), None)
        if self._film is not None:
            self._stack.callback(self._film.close)
            streams = self._film.limit(streams, self._episodes)
        self._pulse = StepPulse(context, streams)
        self._feed = TaskFeed(config.env_config, evaluation=True)
        make_player: Callable[[Config], Player] = partial(
            make,
            self._acting,
            num_envs=streams,
            seed=context.seed,
            pulse=self._pulse,
            feed=self._feed,
        )
        made = make_player(config) if self._film is None else self._film.make_player(make_player)
        self._player: Player = made
        self._stack.callback(made.close)
        self._fetcher = Fetcher(
            link.client,
            clock,
            mode="step",
            interval_seconds=_POLL_PARAMETERS_SECONDS,
        )
        self._scores = EvaluationReporter(context.wire.dealer("learner.control", SCORED), clock)
        judging: str = session.evaluator.mode[0]
        self._judges = agent.agent_mode == judging
        # Curves of another mode must not be mistaken for those of the judging mode.
        self._section = "" if self._judges else f"{mode_name(agent.agent_mode)}/"
        self._pause_seconds: float = session.evaluator.interval_seconds
        self._parameters: Parameters | None = None
        self._evaluation: Evaluation | None = None
        self._confirm = False
        # Time by which the last version must be played; None before it is published.
        self._until: float | None = None
        self._over_due = Every(seconds=_LOOK_SECONDS, clock=clock.now)
        self._began_at = self._next_at = clock.now()
        self._played = (0, 0)
        self._steps_per_second = 0.0
        self._over = self._advised = False

    def tick(self) -> bool:
        """Makes a few steps of an evaluation, or the work between two evaluations."""
        if self._over:
            return False
        self._player.fetch()
        came = self._fetcher.tick()
        if came is not None:
            self._parameters = came
        if self._fetcher.client.newest.final and self._ends():
            return False
        # A stop request ended a long step: `drain` is called next.
        with suppress(StepAbandonedError):
            if self._evaluation is not None:
                self._play(self._evaluation)
                return True
            if self._scores.busy:
                return self._report()
            return self._wait()
        return True

    def _ends(self) -> bool:
        """Ends, or lets the last version be played: at once, and by its deadline."""
        now = self._context.clock.now()
        if self._until is None:
            seconds = self._fetcher.client.newest.info.get("final_seconds", 0.0)
            self._until, self._next_at = now + seconds, now
            self._over = not (seconds and self._judges)
            # An open evaluation is of an older version.
            self._evaluation, self._confirm = None, False
        elif now >= self._until and not self._scores.busy:
            if self._evaluation is not None and self._evaluation.finished:
                self._end(self._evaluation)
            else:
                self._over = True
        # The learner may have ended the run without it.
        elif self._over_due():
            self._over = self._context.run_over
        return self._over

    def _wait(self) -> bool:
        """Waits between evaluations: a pause, then until there is a version not yet evaluated."""
        if self._context.clock.now() < self._next_at:
            return False
        parameters = self._parameters
        if not self._player.ready:
            return False
        ending = self._until is not None
        early = ending and not (parameters is not None and parameters.final and self._player.final)
        if parameters is None or parameters.order == self._played or early:
            if self._fetcher.idle:
                self._fetcher.want()
            return False
        self._agent = self._acting.agent = agent_for(
            self._context, self._agent, parameters, self._policy
        )
        self._agent.load(parameters)
        self._feed.update(parameters)
        self._played = parameters.order
        self._player.load()
        self._begin(confirm=False)
        return True

    def _begin(self, *, confirm: bool) -> None:
        self._confirm = confirm
        self._began_at = self._context.clock.now()
        self._pulse.begin()
        self._player.reset()
        self._evaluation = Evaluation(self._episodes, self._player.num_envs)
        if self._film is not None:
            self._film.begin(self._env_steps, self._agent.version)

    def _play(self, evaluation: Evaluation) -> None:
        now = self._context.clock.now
        until = now() + _TICK_SECONDS
        for _ in range(_STEPS_PER_TICK):
            self._pulse.begin()
            self._player.step(evaluation)
            if self._film is not None:
                self._film.step(evaluation)
            if evaluation.over:
                self._end(evaluation)
                return
            if now() >= until:
                self._advise(evaluation)
                return

    def _advise(self, evaluation: Evaluation) -> None:
        """Warns once if evaluations take too long."""
        seconds = self._context.clock.now() - self._began_at
        if self._advised or seconds < _TOO_LONG_SECONDS:
            return
        self._advised = True
        self._context.event(
            "slow",
            f"{len(evaluation.finished)} of {self._episodes} episodes of an evaluation after "
            f"{seconds:.0f} s: session_config.stop.eval_episodes makes evaluations shorter "
            "(docs/environment_options.md, 'My simulator is slow')",
        )

    def _end(self, evaluation: Evaluation) -> None:
        parameters = self._parameters
        assert parameters is not None  # an evaluation begins with them
        self._evaluation = None
        seconds = self._context.clock.now() - self._began_at
        others = self._player.loaded
        score = score_of(
            evaluation.finished,
            parameters,
            others,
            env_steps=self._env_steps,
            confirm=self._confirm,
            mode=str(self._agent.agent_mode),
            seconds=seconds,
        )
        flats = {f"flat/{policy}": each.flat for policy, each in others.items()}
        self._scores.report(score, {"flat": parameters.flat, **flats} if self._judges else {})
        curves = {
            **mean_metrics(evaluation.finished),
            "return": score["mean_return"],
            "episode_length": score["mean_length"],
            "version_lag": float(self._fetcher.lag),
        }
        if seconds > 0:
            self._steps_per_second = evaluation.env_steps / seconds
            curves["steps_per_second"] = self._steps_per_second
        tagged = {f"{self._section}{name}": value for name, value in curves.items()}
        self._agent.tensorplex.add_scalars(tagged, self._env_steps)

    @property
    def _env_steps(self) -> int:
        """Environment steps that the parameters of all policies that play have learned from."""
        others = [each.env_steps for each in self._player.loaded.values()]
        return max([self._agent.progress.env_steps, *others])

    def _report(self) -> bool:
        """Waits until the learner has acknowledged the score; repeats the evaluation on request."""
        again, parameters = self._scores.tick(), self._parameters
        assert parameters is not None  # an evaluation begins with them
        if again is not None and self._until is not None:
            # It may have been of a version before the last one.
            self._over = parameters.final and parameters.order == self._played
        elif again:
            self._begin(confirm=True)
        elif again is not None:
            self._next_at = self._context.clock.now() + self._pause_seconds
        return again is not None

    def drain(self) -> None:
        """Handles the stop request: drops the open evaluation."""
        self._over = True

    @property
    def doing(self) -> str:
        """Progress of a long evaluation."""
        evaluation, now = self._evaluation, self._context.clock.now()
        if evaluation is None or now - self._began_at < _LONG_SECONDS:
            return ""
        played, version = len(evaluation.finished), self._agent.version
        return f"evaluating version {version}: {played} of {self._episodes} episodes"

    @property
    def proven(self) -> bool:
        """True once its environments have completed enough steps to be trusted."""
        return self._pulse.proven

    @property
    def done(self) -> bool:
        """True once the run is over, unless the process has to stay."""
        return self._over and self._context.may_exit

    @property
    def ready(self) -> bool:
        return not self._over

    def wait_on(self) -> list[Socket]:
        """Returns the sockets of parameters and of the learner's replies."""
        return [self._fetcher.client.socket, self._scores.socket]

    def status(self) -> dict[str, float]:
        return {
            "version": float(self._agent.version),
            "version_lag": float(self._fetcher.lag),
            "steps_per_second": self._steps_per_second,
            **({"env_restarts": restarts} if (restarts := self._player.env.env_restarts) else {}),
        }

    def close(self) -> None:
        """Closes the environments."""
        self._stack.close()
