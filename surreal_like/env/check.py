"""Checks of an environment: all mistakes at once (`check_env`), or the first one, quickly.

`check_env` plays some hundred random steps with the environment as an experiment would make it and
collects findings. `tried_specs` is what a launch does: one reset and a few steps.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from session import nest
from session.errors import ConfigError
from session.process.seeding import seed_all
from session.show.text import count, plural
from surreal_like.data.frames import stack_size, stack_spec
from surreal_like.data.task import TASK, tasks_of
from surreal_like.env.actions import random_action
from surreal_like.env.batched import FirstStream
from surreal_like.env.check_findings import (
    COMPARED_STEPS,
    Report,
    Row,
    StopChecking,
    Trace,
    compare_copies,
    list_names,
    report_rows,
)
from surreal_like.env.check_players import Player, SinglePlayer, make_player
from surreal_like.env.core_kinds import add_arguments
from surreal_like.env.environment import Env, VectorEnv
from surreal_like.env.gym_adapter import GymAdapter
from surreal_like.env.multi_agent import JointEnv, as_joint, group_by_specs, propose_policies
from surreal_like.env.registry import (
    LOOKED_AT,
    SeveralAgents,
    as_batched,
    check_env_config,
    is_joint,
    make_env,
    make_joint_env,
)
from surreal_like.env.step_results import InfoBatch

if TYPE_CHECKING:
    import gymnasium

    from surreal_like.env.multi_agent import AgentSpaces

_SLOW_SECONDS = 0.02
# An evaluation that takes longer gets advice.
_LONG_EVALUATION_SECONDS = 60.0
_TRIED_STEPS = 10
_TRIED_SECONDS = 0.1

# Specs of observations and actions; a row of each key of `env_config.info_keys`.
Specs = tuple[dict[str, Any], dict[str, Any], dict[str, npt.NDArray[Any]]]


def check_env(
    env: str | Mapping[str, Any] | Callable[[], Any] | Env | gymnasium.Env[Any, Any] | AgentSpaces,
    *,
    steps: int = 300,
    seconds: float = 10.0,
    seed: int = 0,
    eval_episodes: int = 100,
    check: Callable[[Env], None] = lambda env: None,
) -> Report:
    """Plays random steps and reports all mistakes of the environment.

    Args:
        env: a name as in `env_config.env_name`, a whole `env_config`, a class or function that
            builds an Env, or an Env. One of Gymnasium or of PettingZoo, and a batched one, will do.
            Copies of an object cannot be compared, and it is not closed.
        steps: number of random steps, followed by a comparison of copies.
        seconds: no step is begun after this time; one step is taken in any case.
        seed: seed of the environment and of the random actions.
        eval_episodes: number of episodes of one evaluation, whose duration is estimated; 0: none.
        check: raises ConfigError for settings that do not go with an environment of one agent.
    """
    given: Any = env
    single = not isinstance(given, type) and hasattr(given, "reset")
    build: Callable[[], Any]
    if single:
        config, build = {"env_name": type(given).__name__}, lambda: given
    elif callable(given):
        config = {"env_name": getattr(given, "__name__", "the environment")}
        build = partial(given, **add_arguments(given, {}, LOOKED_AT, None))
    else:
        config = {"env_name": given} if isinstance(given, str) else given
        check_env_config(config)
        build = partial(_build_named, config)
    report = Report(str(config["env_name"]), survives=config.get("on_error") == "restart")
    with contextlib.suppress(StopChecking):
        checks = _Check(report, build, config, seed, single, eval_episodes)
        checks.run(steps, time.monotonic() + seconds, check)
    return report


def _build_named(env_config: Mapping[str, Any]) -> Env | JointEnv:
    try:
        return make_env(env_config)
    except SeveralAgents:
        return make_joint_env(env_config)


def tried_specs(
    env_config: Mapping[str, Any], check: Callable[[Env], None] = lambda env: None
) -> Specs:
    """Returns (obs_spec, action_spec, info) for an agent, after a reset and a few random steps.

    info: a row of each key of `env_config.info_keys`, as agents send it.

    check: called with the environment first.
    Raises what it, `make_env` and `specs_of` raise, and ConfigError for mistakes in the steps.
    """
    name, keys = str(env_config.get("env_name")), tuple(env_config.get("info_keys") or ())
    # Environments may draw from the global generators: a run with the same seed is the same.
    with seed_all(0), contextlib.closing(make_env(env_config)) as env:
        check(env)
        report = Report(name)
        player = SinglePlayer(env, env_config, report)
        obs_spec, action_spec = player.specs[""]
        until, cause = time.monotonic() + _TRIED_SECONDS, None
        try:
            played = _Loop(report, player, 0)
            [first] = played.rows
            with report.guard("info"):
                numbers = {TASK: 0} if tasks_of(env_config) and TASK in keys else {}
                info = InfoBatch(keys, 1)([{**numbers, **first.info}], np.zeros(1, np.float32))
            played.play(_TRIED_STEPS, until)
        except StopChecking as stop:
            cause = stop.__cause__
    for one in report.findings:
        if one.kind == "error":
            text = f"environment {name}: {one.what}: {one.text}"
            raise ConfigError(f"{text}; `surreal-like check` shows everything") from cause
    return stack_spec(obs_spec, stack_size(env_config)), action_spec, {k: info[k][0] for k in keys}


class _Loop:
    """Plays random steps with an environment; every kind of environment is played here.

    Args:
        report: collects the findings.
        player: resets and steps the environment.
        seed: seed of the environment and of the random actions.

    Attributes:
        rows: the newest rows.
    """

    def __init__(self, report: Report, player: Player, seed: int) -> None:
        self._report, self._player = report, player
        self._rng = np.random.default_rng(seed)
        self._ends, self._seconds = 0, list[float]()
        with report.guard("reset()"):
            self.rows = player.reset(seed)
        # Those of agents that act next.
        self._acting = self._look()

    def play(self, steps: int, until: float) -> None:
        """Plays so many steps; begins none after a time, once there was one."""
        wanted = steps * self._player.copies
        # Twice as many: a reset is no step.
        for _ in range(2 * steps):
            self.step()
            late = time.monotonic() > until and self._player.steps
            if self._player.steps >= wanted or late:
                break

    def step(self) -> list[Row]:
        """Makes a step, or begins an episode; returns the rows."""
        player = self._player
        steps = player.steps
        actions = [
            random_action(player.specs[row.agent][1], self._rng, row.obs) for row in self._acting
        ]
        began = time.monotonic()
        with self._report.guard("step()" if actions else "reset()"):
            try:
                self.rows = player.step(actions)
            except (Exception, SystemExit) as error:
                error.add_note(f"after {steps} steps")
                raise
        if player.steps > steps:
            self._seconds.append(time.monotonic() - began)
        self._acting = self._look()
        # An episode of several agents ends once, with the last of them.
        over = len(self.rows) - len(self._acting)
        self._ends += over if not player.about else not self._acting
        return self.rows

    @property
    def median(self) -> float:
        """Median duration of the steps; 0 without any."""
        return float(np.median(self._seconds)) if self._seconds else 0.0

    def report(self, wanted: int, num_envs: int) -> None:
        """Adds findings about the steps.

        Args:
            wanted: number of steps asked for.
            num_envs: number of environments of a run.
        """
        report, player, median = self._report, self._player, self.median
        steps = player.steps
        report_rows(report, player.values, steps)
        if report.ok:
            report.add("ok", "steps", f"{steps} {player.kind}, {self._ends} episodes ended")
        if not self._ends and steps >= wanted * player.copies:
            text = f"none ended in {steps} steps: env_config.limit_episode_length cuts them off"
            report.add("advice", "episodes", text)
        shown = f"{_show(median)} (median)"
        if median >= _SLOW_SECONDS:
            shown += (
                f": {num_envs} environments one after the other take {num_envs * median:.1f} s for "
                f"a step; {player.remedy}"
            )
        report.add("advice" if median >= _SLOW_SECONDS else "ok", "step time", shown)

    def report_evaluation(self, episodes: int) -> None:
        """Adds advice if an evaluation that makes one step after the other is long.

        Args:
            episodes: number of its episodes.
        """
        steps = self._player.steps / max(self._ends, 1)
        seconds = episodes * steps * self.median
        if seconds > _LONG_EVALUATION_SECONDS:
            least = "" if self._ends else "at least "
            text = (
                f"{episodes} episodes of {least}{count(steps)} steps take {least}"
                f"{plural(round(seconds / 60), 'minute')}: lower session_config.stop.eval_episodes"
            )
            self._report.add("advice", "evaluation", text)

    def _look(self) -> list[Row]:
        """Checks the newest rows; returns those of agents that act."""
        return [row for row in self.rows if not self._player.values[row.agent].look(row)]


@dataclass(slots=True)
class _Check:
    """Checks of one environment.

    Args:
        report: collects the findings.
        build: builds the environment.
        config: `env_config`.
        seed: seed of the environment and of the random actions.
        single: True if there is one object only, which is not closed.
        eval_episodes: number of episodes of one evaluation.
    """

    report: Report
    build: Callable[[], Any]
    config: Mapping[str, Any]
    seed: int
    single: bool = False
    eval_episodes: int = 0

    def run(self, steps: int, until: float, check: Callable[[Env], None]) -> None:
        """Runs all checks, in the order in which an author would look for mistakes."""
        report = self.report
        with contextlib.ExitStack() as stack:
            player = self._open(stack)
            self._check_specs(player)
            loop = _Loop(report, player, self.seed)
            loop.play(steps, until)
            loop.report(steps, self.config.get("num_envs") or 8)
            # Copies of a batch, and worker processes, make several steps at once.
            if player.copies == 1 and self.config.get("vector", "native") in ("native", "sync"):
                loop.report_evaluation(self.eval_episodes)
            player.report(report)
            if report.ok and isinstance(player, SinglePlayer):
                with report.guard("settings"):
                    check(player.env)
        if not report.ok:
            return
        if self.single:
            text = "not compared: give the class, or a function that builds it, to compare copies"
            report.add("advice", "copies", text)
            return
        until = max(until, time.monotonic() + 1.0)
        compare_copies(report, partial(self._trace, until), player.source)
        # They reset the environment some ten times, without a look at the time.
        if loop.median < _SLOW_SECONDS:
            from surreal_like.env.foreign_tests import run_tests

            run_tests(report, self._open)

    def _open(self, stack: contextlib.ExitStack) -> Player:
        """Builds the environment; the stack closes it."""
        report = self.report
        with report.guard("constructor"):
            built = self.build()
            if is_joint(built):
                built = as_joint(built)
            elif not isinstance(built, Env | JointEnv):
                built = _adapt(built, self.config)
        if not self.single:
            stack.callback(self._close, built)
        with report.guard("specs"):
            return make_player(built, self.config, report)
        raise StopChecking

    def _close(self, env: Any) -> None:
        with self.report.guard("close()"):
            env.close()

    def _check_specs(self, player: Player) -> None:
        if player.about:
            self.report.add("ok", "agents", player.about)
        groups = group_by_specs(player.specs)
        for _, names in groups:
            what = "specs" if len(groups) == 1 else list_names(names)
            player.values[names[0]].report_specs(what)
        if len(groups) > 1:
            text = f"the specs of agents differ: write {propose_policies(player.specs)}"
            self.report.add("advice", "policies", text)

    def _trace(self, until: float, beside: bool) -> Trace:
        """Returns rows of the same actions; steps a copy in between."""
        with contextlib.ExitStack() as stack:
            seeds = [self.seed, self.seed + 1] if beside else [self.seed]
            players = [self._open(stack) for _ in seeds]
            # The copy first: it must not change what the other one begins with.
            loops = [
                _Loop(self.report, player, seed)
                for player, seed in reversed([*zip(players, seeds, strict=True)])
            ]
            seen = [_seen(loops[-1].rows)]
            for _ in range(COMPARED_STEPS):
                rows = [loop.step() for loop in reversed(loops)]
                seen.append(_seen(rows[0]))
                if time.monotonic() > until:
                    break
            return seen


def _seen(rows: list[Row]) -> list[tuple[Any, list[bytes]]]:
    return [(row.reward, [np.asarray(x).tobytes() for x in nest.leaves(row.obs)]) for row in rows]


def _adapt(built: Any, config: Mapping[str, Any]) -> Env:
    import gymnasium.vector

    if isinstance(built, VectorEnv | gymnasium.vector.VectorEnv):
        return FirstStream(as_batched(built, config))
    return GymAdapter(built, config)


def _show(seconds: float) -> str:
    milliseconds = 1e3 * seconds
    if milliseconds < 10:
        return f"{milliseconds:.2g} ms"
    return f"{milliseconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
