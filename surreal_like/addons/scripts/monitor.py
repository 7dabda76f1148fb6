"""Monitors: wrappers that count episodes and report them, once per interval."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from session.config.sections import complete_session
from session.errors import UsageError
from session.nest import Nest
from session.process.clock import Clock, WallClock
from session.process.periodic import Every
from session.process.script import current_context
from session.tensorplex.metrics_client import TensorplexClient
from surreal_like.data.episodes import EpisodeCounter, EpisodeSummary, mean_metrics
from surreal_like.env.environment import Env, Info, VectorEnv, VectorStep, VectorWrapper
from surreal_like.env.vector import as_vector

_EPISODES_KEPT = 1000
_HEADER_EVERY = 20
_COLUMNS = ("env steps", "steps/s", "episodes", "return", "min", "max", "length")


class EpisodeMonitor(VectorWrapper):
    """Counts the episodes of N streams from raw rewards; base of the monitors that report them.

    env: an Env (N = 1) or a VectorEnv.
    interval_seconds: time between two reports; 0: only one report, on close.
    clock: source of the time.
    finished: summaries of the episodes that the newest step ended, in the order of the streams.
    """

    def __init__(
        self, env: Env | VectorEnv, *, interval_seconds: float, clock: Clock | None = None
    ) -> None:
        super().__init__(as_vector(env))
        self.finished: list[EpisodeSummary] = []
        self._clock = clock or WallClock()
        self._due = Every(seconds=interval_seconds, clock=self._clock.now)
        self._counter = EpisodeCounter(self.num_envs)
        self._unreported: deque[EpisodeSummary] = deque(maxlen=_EPISODES_KEPT)
        self._reported_steps = 0
        self._reported_at = self._clock.now()

    @property
    def env_steps(self) -> int:
        """Environment steps of all streams so far."""
        return self._counter.env_steps

    @property
    def episodes(self) -> int:
        """Episodes that ended so far."""
        return self._counter.episodes

    def reset(self) -> tuple[Nest, Info]:
        """Resets all streams; their open episodes are not counted."""
        self._counter.reset()
        self.finished = []
        return self.env.reset()

    def step(self, actions: npt.NDArray[Any]) -> VectorStep:
        """Steps, counts, and reports if a report is due."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        last = terminated | truncated
        self.finished = self._counter.update(
            info.get("raw_reward", reward),
            last,
            info.get("metrics"),
            info.get("life_lost"),
            begun="final_obs" in info,
        )
        self._unreported.extend(self.finished)
        if self._due():
            self._report()
        return obs, reward, terminated, truncated, info

    def close(self) -> None:
        """Reports the episodes not reported yet, and closes the environment."""
        if self._unreported:
            self._report()
        super().close()

    def report(self, episodes: list[EpisodeSummary], steps_per_second: float) -> None:
        """Reports the time since the last report; defined by derived classes.

        episodes: that ended in it, at most the newest 1000.
        """
        raise NotImplementedError

    def _report(self) -> None:
        now = self._clock.now()
        seconds = now - self._reported_at
        steps = self.env_steps - self._reported_steps
        self._reported_at, self._reported_steps = now, self.env_steps
        episodes = list(self._unreported)
        self._unreported.clear()
        self.report(episodes, steps / seconds if seconds > 0 else 0.0)


class TensorplexMonitor(EpisodeMonitor):
    """Reports to Tensorplex; base of the monitors for agents and evaluators.

    group: `agent` or `eval`.
    number: number of the agent or evaluator.
    The others are those of TrainingTensorplexMonitor.
    """

    def __init__(
        self,
        env: Env | VectorEnv,
        group: str,
        number: int,
        session_config: Mapping[str, Any],
        separate_plots: bool,
        *,
        tensorplex: TensorplexClient | None = None,
        clock: Clock | None = None,
        global_step: Callable[[], int] | None = None,
    ) -> None:
        if not str(number).isdecimal():
            raise UsageError(f"{group}_id is {number!r}: expected a number, 0 or more")
        seconds: float = complete_session(session_config).tensorplex.update_schedule
        super().__init__(env, interval_seconds=seconds, clock=clock)
        client_id = f"{group}/{number}" if separate_plots else f"session/{group}s"
        self.tensorplex = tensorplex or TensorplexClient.early(client_id, self._clock)
        # A script has a context once its sender, inside this wrapper, or its agent has connected.
        self._looks_for_script = tensorplex is None
        self._global_step = global_step or (lambda: self.env_steps)

    def report(self, episodes: list[EpisodeSummary], steps_per_second: float) -> None:
        """Sends speed, mean return, mean length, and the means of the environment's own metrics."""
        context = current_context() if self._looks_for_script else None
        if context is not None:
            self.tensorplex = self.tensorplex.join(context.metrics(self.tensorplex.client_id))
            self._looks_for_script = False
        values = {"steps_per_second": steps_per_second}
        if episodes:
            values["return"] = float(np.mean([episode["return"] for episode in episodes]))
            values["episode_length"] = float(np.mean([episode["length"] for episode in episodes]))
        self.tensorplex.add_scalars(mean_metrics(episodes) | values, self._global_step())


class TrainingTensorplexMonitor(TensorplexMonitor):
    """Reports the episodes of one agent, once per `tensorplex.update_schedule`.

    Args:
        env: the environment, or several in one.
        agent_id: number of the agent.
        session_config: missing keys are as in the defaults.
        separate_plots: one curve per agent; else all agents share one, `agents/return`.
        tensorplex: a client of a running component, whose id is then used; by default that of the
            script, and without a script nothing is sent.
        clock: source of the time.
        global_step: returns the x-axis of the curves; by default the steps of this environment.

    Raises:
        UsageError: ``agent_id`` is no number.
    """

    def __init__(
        self,
        env: Env | VectorEnv,
        agent_id: int,
        session_config: Mapping[str, Any],
        separate_plots: bool = True,
        *,
        tensorplex: TensorplexClient | None = None,
        clock: Clock | None = None,
        global_step: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(
            env,
            "agent",
            agent_id,
            session_config,
            separate_plots,
            tensorplex=tensorplex,
            clock=clock,
            global_step=global_step,
        )


class EvalTensorplexMonitor(TensorplexMonitor):
    """Reports the episodes of one evaluator, once per `tensorplex.update_schedule`.

    Args:
        eval_id: number of the evaluator; all else as for an agent.
    """

    def __init__(
        self,
        env: Env | VectorEnv,
        eval_id: int,
        session_config: Mapping[str, Any],
        separate_plots: bool = True,
        *,
        tensorplex: TensorplexClient | None = None,
        clock: Clock | None = None,
        global_step: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(
            env,
            "eval",
            eval_id,
            session_config,
            separate_plots,
            tensorplex=tensorplex,
            clock=clock,
            global_step=global_step,
        )


class ConsoleMonitor(EpisodeMonitor):
    """Writes the same summary as rows of a table, for work without servers.

    interval_seconds: time between two rows.
    stream: output of the rows, by default the standard output.
    """

    def __init__(
        self,
        env: Env | VectorEnv,
        *,
        interval_seconds: float = 5.0,
        stream: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(env, interval_seconds=interval_seconds, clock=clock)
        self._stream = stream
        self._rows = 0

    def report(self, episodes: list[EpisodeSummary], steps_per_second: float) -> None:
        """Writes one row; every 20 rows begin with the names of the columns."""
        returns = np.array([episode["return"] for episode in episodes])
        cells = [f"{self.env_steps}", f"{steps_per_second:.1f}", f"{self.episodes}"]
        if episodes:
            length = np.mean([episode["length"] for episode in episodes])
            numbers = (returns.mean(), returns.min(), returns.max(), length)
            cells += [f"{number:.2f}" for number in numbers]
        cells += ["-"] * (len(_COLUMNS) - len(cells))
        own = [f"{name} {value:.4g}" for name, value in mean_metrics(episodes).items()]
        stream = self._stream or sys.stdout
        if self._rows % _HEADER_EVERY == 0:
            stream.write(_row(_COLUMNS) + "\n")
        self._rows += 1
        stream.write("  ".join([_row(cells), *own]) + "\n")
        stream.flush()


def _row(cells: tuple[str, ...] | list[str]) -> str:
    return "".join(cell.rjust(11) for cell in cells)
