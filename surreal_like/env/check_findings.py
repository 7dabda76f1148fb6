"""Findings about an environment: what its rows, its steps and its copies show."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from session import nest
from session.errors import SurrealError, describe
from surreal_like.data.casts import cast
from surreal_like.data.episodes import metric_number
from surreal_like.data.masks import MASK
from surreal_like.data.spec import ArraySpec, is_bounded, parse_action_spec, parse_obs_spec
from surreal_like.env.environment import Info
from surreal_like.env.masks import make_guard
from surreal_like.env.multi_agent import Specs
from surreal_like.env.spaces import add_bounds
from surreal_like.env.step_results import flag as as_flag
from surreal_like.env.step_results import number
from surreal_like.errors import DataError

COMPARED_STEPS = 50
_SHOWN = 6
_WIDTH = 79
_MARKS = {"ok": "ok", "advice": "note", "error": "WRONG"}

# Of each step the rewards, and the bytes of the observations, of its rows.
Trace = list[list[tuple[Any, list[bytes]]]]


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
        """Turns an error of the author's code, or its exit, into a finding; ends the checks."""
        try:
            yield
        except StopChecking:
            raise
        except (Exception, SystemExit) as error:
            survived = self.survives and not isinstance(error, SurrealError | SystemExit)
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


class Row(NamedTuple):
    """Observation of an agent after a reset or a step; the agent acts next unless it has ended.

    Args:
        agent: name of the agent.
        obs: the observation.
        reward: reward since the last row of the agent; None: the row begins an episode.
        terminated, truncated: flags, as the environment gave them.
        info: info of a single environment.
    """

    agent: str
    obs: Any
    reward: Any = None
    terminated: Any = False
    truncated: Any = False
    info: Info | Mapping[str, Any] = MappingProxyType({})


class Values:
    """Checks the rows of one agent.

    Args:
        report: collects the findings.
        specs: observation spec and action spec.
        agent: name of the agent, which the subject of each finding begins with; empty: none.
        space: space of the observations, whose bounds hold, too; None: there is none.

    Attributes:
        seen: number of rows.

    Raises:
        SpecError: a spec is wrong, or a mask does not fit the actions.
    """

    def __init__(
        self, report: Report, specs: Specs, agent: str = "", space: spaces.Space[Any] | None = None
    ) -> None:
        self._report, self._prefix = report, f"{agent} " if agent else ""
        obs_spec = specs[0] if space is None else add_bounds(specs[0], space)
        self._obs: dict[str, ArraySpec] = nest.flatten(parse_obs_spec(obs_spec), "obs")
        self.seen, self._action_spec = 0, specs[1]
        self._masks = make_guard(*specs, lambda _: f"in observation {self.seen}")

    def _add(self, kind: str, what: str, text: str) -> None:
        self._report.add(kind, self._prefix + what, text)

    @contextlib.contextmanager
    def _refusal(self, what: str, *, stops: bool = False) -> Iterator[None]:
        """Makes a finding of a DataError; `stops`: it makes further steps impossible."""
        try:
            yield
        except DataError as error:
            self._add("error", what, str(error).removeprefix(f"{what}: "))
            if stops:
                raise StopChecking from error

    def report_specs(self, what: str) -> None:
        """Adds the specs, and a finding about continuous actions without bounds."""
        parts = ", ".join(f"{path} {one.type} {list(one.dim)}" for path, one in self._obs.items())
        self._report.add("ok", what, f"{parts}; actions {self._action_spec}")
        array = parse_action_spec(self._action_spec).array
        if array.num is None and not is_bounded(array):
            text = "no low and high for every element: sac, td3 and ddpg need bounds"
            self._report.add("advice", "action_spec", text)

    def look(self, row: Row) -> bool:
        """Checks a row; returns True if it ends the episode of its agent."""
        self.seen += 1
        parts = self._observe(row.obs)
        if row.reward is not None:
            self._check_reward(row.reward)
        flags = [self._flag(name, getattr(row, name)) for name in ("terminated", "truncated")]
        self._check_metrics(row.info.get("metrics"))
        mask = f"obs/{MASK}"
        if self._masks is not None:
            if mask not in parts:
                # No action can be chosen; the mistake was added.
                raise StopChecking
            with self._refusal(mask, stops=True):
                self._masks.observe({MASK: parts[mask][None]}, np.array([any(flags)]))
        return any(flags)

    def _check_reward(self, reward: Any) -> None:
        with self._refusal("reward"):
            paid = number("reward", reward)
            if not np.isfinite(paid):
                raise DataError(f"is {paid}, expected a finite number")
            cast("reward", paid, np.float32)

    def _flag(self, name: str, value: Any) -> bool:
        with self._refusal(name, stops=True):
            taken = as_flag(name, value)
        if not isinstance(value, bool | np.bool_):
            self._add("advice", name, f"is {value!r}, taken as {taken}")
        return taken

    def _check_metrics(self, metrics: Any) -> None:
        if metrics is not None and not isinstance(metrics, Mapping):
            text = f"info['metrics'] is {metrics!r}, expected a flat dict of numbers"
            self._add("error", "metrics", text)
            return
        for name, value in (metrics or {}).items():
            with self._refusal("metrics"):
                metric_number(name, value)

    def _observe(self, obs: Any) -> dict[str, npt.NDArray[Any]]:
        """Checks the leaves of an observation; returns those without a mistake."""
        try:
            leaves = nest.flatten(obs, "obs")
        except ValueError as error:
            self._add("error", "obs", str(error))
            raise StopChecking from error
        for path in sorted(set(leaves) ^ set(self._obs)):
            where = "not given" if path in self._obs else "given, but not in the spec"
            self._add("error", path, f"{where}: obs_spec has {', '.join(self._obs)}")
        good = {}
        for path, spec in self._obs.items():
            if path in leaves:
                with self._refusal(path):
                    good[path] = self._convert(path, leaves[path], spec)
        return good

    def _convert(self, path: str, value: Any, spec: ArraySpec) -> npt.NDArray[Any]:
        converted = cast(path, value, spec.dtype)
        dtype = np.asarray(value).dtype
        if dtype != spec.dtype:
            self._add("advice", path, f"{dtype} given, converted to {spec.type} at each step")
        spec.validate(path, converted)
        if converted.shape != spec.dim:
            raise DataError(f"shape {list(converted.shape)}, expected {list(spec.dim)}")
        return converted


def report_rows(report: Report, values: Mapping[str, Values], steps: int) -> None:
    """Adds findings about all rows of all agents, once the steps have been made.

    Args:
        report: collects the findings.
        values: agent -> checks of its rows.
        steps: number of steps.
    """
    absent = [agent for agent, each in values.items() if not each.seen]
    if absent:
        report.add("advice", "absent", f"{list_names(absent)} had no observation in {steps} steps")


def list_names(names: Sequence[str]) -> str:
    """Returns names as a text; of many the first ones."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} others" if more > 0 else "")


def compare_copies(report: Report, trace: Callable[[bool], Trace], source: str) -> None:
    """Compares copies with one seed: alone, then with another copy stepped in between.

    Args:
        report: collects the findings.
        trace: plays a new copy with the seed, with another copy in between if its argument is True.
        source: the generator that an author should draw from.
    """
    alone, again = trace(False), trace(False)
    count = min(len(alone), len(again))
    if alone[:count] != again[:count]:
        text = f"two copies with one seed differ: take all randomness from {source}"
        report.add("advice", "seed", text)
        return
    report.add("ok", "seed", f"two copies with one seed gave the same {count} steps")
    beside = trace(True)
    count = min(count, len(beside))
    if alone[:count] == beside[:count]:
        report.add("ok", "copies", "two copies in one process leave each other alone")
    else:
        text = "two copies in one process change each other: they share state"
        report.add("error", "copies", text)
