"""Findings about an environment, and the checks that are the same for one agent and for several."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from session import nest
from session.errors import SurrealError, describe
from surreal_like.data.casts import cast
from surreal_like.data.spec import ArraySpec, is_bounded, parse_action_spec, parse_obs_spec
from surreal_like.env.batching import flag as as_flag
from surreal_like.env.batching import number
from surreal_like.env.registry import SeveralAgents
from surreal_like.errors import DataError

COMPARED_STEPS = 50
_SLOW_SECONDS = 0.02
_SLOW_REMEDY = (
    "see 'My simulator is slow' in docs/your_own_environment.md (env_config.vector=process, "
    "env_config.workers, session_config.stop.eval_episodes)"
)
_WIDTH = 79
_MARKS = {"ok": "ok", "advice": "note", "error": "WRONG"}

# Observations as lists of leaves, and rewards.
Trace = list[tuple[list[npt.NDArray[Any]], float]]


class StopChecking(Exception):
    """Raised when a finding makes all further checks impossible."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    kind: `ok`, `advice` (it runs, but should be known) or `error` (a run would fail).
    what: the subject, in a word or two; text: the result, and the remedy.
    """

    kind: str
    what: str
    text: str


@dataclass(slots=True)
class Report:
    """Findings of `check_env`.

    name: of the environment; findings: in the order of the checks.
    survives: True if a run makes the environment anew after an error of `reset` or `step`.
    """

    name: str
    findings: list[Finding] = field(default_factory=list)
    survives: bool = False

    @property
    def ok(self) -> bool:
        """True if there is no error; advice does not count."""
        return all(finding.kind != "error" for finding in self.findings)

    def add(self, kind: str, what: str, text: str) -> None:
        """Adds a finding; only the first of each kind and subject."""
        if all((one.kind, one.what) != (kind, what) for one in self.findings):
            self.findings.append(Finding(kind, what, text))

    @contextlib.contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Turns an error of the author's code into a finding, and ends the checks."""
        try:
            yield
        except (StopChecking, SeveralAgents):
            raise
        except Exception as error:
            survived = self.survives and not isinstance(error, SurrealError)
            if survived and what in ("reset()", "step()"):
                text = "a run survives it (env_config.on_error is restart), the checks end here"
                self.add("advice", what, f"{describe(error)}: {text}")
            else:
                self.add("error", what, describe(error))
            raise StopChecking from error

    def __str__(self) -> str:
        wide = max((len(one.what) for one in self.findings), default=0)
        lines = [self.name, ""]
        for one in self.findings:
            head = f"{_MARKS[one.kind]:<6} {one.what:<{wide}}  "
            lines += textwrap.wrap(
                one.text,
                _WIDTH,
                initial_indent=head,
                subsequent_indent=" " * len(head),
                break_on_hyphens=False,
            )
        wrong = sum(one.kind == "error" for one in self.findings)
        end = f"{wrong or 'no'} mistake{'s' if wrong != 1 else ''}"
        return "\n".join([*lines, "", end])


class ValueChecks:
    """Checks the values of the steps of one agent against its specs.

    Args:
        report: collects the findings.
        obs_spec: observation spec.
        agent: name of the agent, which the subject of each finding begins with; empty: none.
    """

    def __init__(self, report: Report, obs_spec: Mapping[str, Any], agent: str = "") -> None:
        self._report, self._prefix = report, f"{agent} " if agent else ""
        self.obs: dict[str, ArraySpec] = nest.flatten(parse_obs_spec(obs_spec), "obs")

    def _add(self, kind: str, what: str, text: str) -> None:
        self._report.add(kind, self._prefix + what, text)

    def describe(self, action_spec: Mapping[str, Any]) -> str:
        """Returns the specs in one line."""
        parts = ", ".join(f"{path} {one.type} {list(one.dim)}" for path, one in self.obs.items())
        return f"{parts}; actions {action_spec}"

    def reward(self, reward: Any) -> None:
        """Checks a reward."""
        try:
            paid = number("reward", reward)
            if not np.isfinite(paid):
                self._add("error", "reward", f"is {paid}, expected a finite number")
                return
            cast("reward", paid, np.float32)
        except DataError as error:
            self._add("error", "reward", str(error).removeprefix("reward: "))

    def flag(self, name: str, value: Any) -> bool:
        """Checks a flag of a step; returns it."""
        try:
            taken = as_flag(name, value)
        except DataError as error:
            self._add("error", name, str(error).removeprefix(f"{name}: "))
            raise StopChecking from error
        if not isinstance(value, bool | np.bool_):
            self._add("advice", name, f"is {value!r}, taken as {taken}")
        return taken

    def observe(self, obs: Any) -> None:
        """Checks the leaves of an observation."""
        leaves = nest.flatten(obs, "obs")
        for path in sorted(set(leaves) ^ set(self.obs)):
            where = "not given" if path in self.obs else "given, but not in the spec"
            self._add("error", path, f"{where}: obs_spec has {', '.join(self.obs)}")
        for path, spec in self.obs.items():
            if path in leaves:
                self._part(path, leaves[path], spec)

    def _part(self, path: str, value: Any, spec: ArraySpec) -> None:
        try:
            converted = cast(path, value, spec.dtype)
            dtype = np.asarray(value).dtype
            if dtype != spec.dtype:
                text = f"{dtype} given, converted to {spec.type} at each step"
                self._add("advice", path, text)
            spec.validate(path, converted)
            if converted.shape != spec.dim:
                raise DataError(f"{path}: shape {list(converted.shape)}, expected {list(spec.dim)}")
        except DataError as error:
            self._add("error", path, str(error).removeprefix(f"{path}: "))


def check_bounds(report: Report, action_spec: Mapping[str, Any]) -> None:
    """Adds a finding about continuous actions without bounds."""
    array = parse_action_spec(action_spec).array
    if array.num is None and not is_bounded(array):
        report.add(
            "advice",
            "action_spec",
            "no low and high for every element: sac, td3 and ddpg need bounds",
        )


@dataclass(frozen=True, slots=True)
class Played:
    """Statistics of random steps.

    Args:
        steps: number of the steps.
        wanted: number of steps asked for.
        ends: number of episodes that ended.
        seconds: duration of each step.
        kind: kind of the steps, for the text.
    """

    steps: int
    wanted: int
    ends: int
    seconds: list[float]
    kind: str = "random steps"


def report_played(
    report: Report, played: Played, num_envs: int, remedy: str = _SLOW_REMEDY
) -> None:
    """Adds findings about the number and the duration of steps.

    Args:
        report: collects them.
        played: statistics of the steps.
        num_envs: number of environments of a run.
        remedy: the advice for slow steps.
    """
    steps, ends = played.steps, played.ends
    seconds = float(np.median(played.seconds)) if played.seconds else 0.0
    if report.ok:
        report.add("ok", "steps", f"{steps} {played.kind}, {ends} episodes ended")
    if not ends and steps == played.wanted:
        text = f"none ended in {steps} steps: env_config.limit_episode_length cuts them off"
        report.add("advice", "episodes", text)
    if seconds < _SLOW_SECONDS:
        report.add("ok", "step time", f"{_show(seconds)} (median)")
        return
    report.add(
        "advice",
        "step time",
        f"{_show(seconds)} (median): {num_envs} environments one after the other take "
        f"{num_envs * seconds:.1f} s for a step; {remedy}",
    )


def compare_copies(report: Report, trace: Callable[[bool], Trace], source: str) -> None:
    """Compares copies with one seed: alone, then with another copy stepped in between.

    Args:
        report: collects the findings.
        trace: plays a new copy with the seed, with another copy in between if its argument is True.
        source: the generator that an author should draw from.
    """
    alone, again = trace(False), trace(False)
    count = min(len(alone), len(again))
    if not _equal(alone[:count], again[:count]):
        text = f"two copies with one seed differ: take all randomness from {source}"
        report.add("advice", "seed", text)
        return
    report.add("ok", "seed", f"two copies with one seed gave the same {count} steps")
    beside = trace(True)
    count = min(count, len(beside))
    if _equal(alone[:count], beside[:count]):
        report.add("ok", "copies", "two copies in one process leave each other alone")
    else:
        text = "two copies in one process change each other: they share state"
        report.add("error", "copies", text)


def report_not_compared(report: Report) -> None:
    """Adds the finding that a single object has no copies."""
    text = "not compared: give the class, or a function that builds it, to compare copies"
    report.add("advice", "copies", text)


def _equal(one: Trace, other: Trace) -> bool:
    return all(
        mine[1] == theirs[1] and all(map(np.array_equal, mine[0], theirs[0]))
        for mine, theirs in zip(one, other, strict=True)
    )


def _show(seconds: float) -> str:
    milliseconds = 1e3 * seconds
    if milliseconds < 10:
        return f"{milliseconds:.2g} ms"
    return f"{milliseconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
