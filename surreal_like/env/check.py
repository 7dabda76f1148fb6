"""Checks of an environment: all mistakes at once (`check_env`), or the first one, quickly.

`check_env` plays some hundred random steps with the environment as an experiment would make it and
collects findings. `tried_specs` is what a launch does: one reset and a few steps.
"""

from __future__ import annotations

import contextlib
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from session import nest
from session.errors import ConfigError, describe
from session.process.seeding import seed_all
from surreal_like.data.casts import cast
from surreal_like.data.frames import stack_size, stack_spec
from surreal_like.data.masks import MASK
from surreal_like.data.spec import ArraySpec, is_bounded, parse_action_spec, parse_obs_spec
from surreal_like.env.base import Env
from surreal_like.env.batching import flag, kinds
from surreal_like.env.registry import check_env_config, make_env, specs_of
from surreal_like.env.vector import SyncVector
from surreal_like.errors import DataError

if TYPE_CHECKING:
    import gymnasium

_SLOW_SECONDS = 0.02
_COMPARED_STEPS = 50
_TRIED_STEPS = 10
_TRIED_SECONDS = 0.1
_WIDTH = 79
_MARKS = {"ok": "ok", "advice": "note", "error": "WRONG"}

Specs = tuple[dict[str, Any], dict[str, Any]]


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
    """

    name: str
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if there is no error; advice does not count."""
        return all(finding.kind != "error" for finding in self.findings)

    def add(self, kind: str, what: str, text: str) -> None:
        """Adds a finding; only the first of each kind and subject."""
        if all((one.kind, one.what) != (kind, what) for one in self.findings):
            self.findings.append(Finding(kind, what, text))

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


def check_env(
    env: str | Mapping[str, Any] | Callable[[], Any] | Env | gymnasium.Env[Any, Any],
    *,
    steps: int = 300,
    seconds: float = 10.0,
    seed: int = 0,
) -> Report:
    """Plays random steps and reports all mistakes of the environment.

    Args:
        env: a name as in `env_config.env_name`, a whole `env_config`, a class or function that
            builds an Env, or an Env. One of Gymnasium will do. Copies of an object cannot be
            compared, and it is not closed.
        steps: number of random steps, followed by a comparison of copies.
        seconds: no step is begun after this time; one step is taken in any case.
        seed: seed of the environment and of the random actions.
    """
    given: Any = env
    single = not isinstance(given, type) and hasattr(given, "reset")
    if single:
        build, config = (lambda: given), {"env_name": type(given).__name__}
    elif callable(given):
        build, config = given, {"env_name": getattr(given, "__name__", "the environment")}
    else:
        config = {"env_name": given} if isinstance(given, str) else given
        check_env_config(config)
        build = _builder(config)
    report = Report(str(config["env_name"]))
    check = _Check(report, build, config, seed, time.monotonic() + seconds, single)
    with contextlib.suppress(_StopChecking):
        check.run(steps)
    return report


def tried_specs(env_config: Mapping[str, Any]) -> Specs:
    """Returns (obs_spec, action_spec) for an agent, after a reset and a few random steps.

    Raises what `make_env` and `specs_of` raise, and ConfigError for mistakes in the steps.
    """
    name = env_config.get("env_name")
    # Environments may draw from the global generators: a run with the same seed is the same.
    with seed_all(0), contextlib.closing(make_env(env_config)) as env:
        obs_spec, action_spec = specs_of(env, env_config)
        try:
            _try(env, obs_spec, action_spec, tuple(env_config.get("info_keys") or ()))
        except Exception as error:
            raise ConfigError(
                f"environment {name}: {describe(error)}; `surreal-like check` shows everything"
            ) from error
    return stack_spec(obs_spec, stack_size(env_config)), action_spec


def _try(
    env: Env, obs_spec: dict[str, Any], action_spec: dict[str, Any], info_keys: tuple[str, ...]
) -> None:
    env.seed(0)
    specs: dict[str, Any] = {"obs_spec": obs_spec, "action_spec": action_spec}
    vector = SyncVector([env], **specs, info_keys=info_keys)
    rng, until = np.random.default_rng(0), time.monotonic() + _TRIED_SECONDS
    parts: dict[str, ArraySpec] = nest.flatten(parse_obs_spec(obs_spec), "obs")
    obs = vector.reset()[0]
    for _ in range(_TRIED_STEPS):
        for path, leaf in nest.flatten(obs, "obs").items():
            parts[path].validate(path, leaf)
        one = nest.map(lambda leaf: leaf[0], obs)
        obs = vector.step(random_action(action_spec, rng, one)[None])[0]
        if time.monotonic() > until:
            return


def random_action(
    action_spec: Mapping[str, Any], rng: np.random.Generator, obs: Any = None
) -> npt.NDArray[Any]:
    """Returns a valid action, uniform within its bounds, or within +-1 where it has none.

    obs: observation of one environment, whose mask leaves illegal actions out; None: all are legal.
    """
    parsed = parse_action_spec(action_spec)
    spec, ends = parsed.array, parsed.inner_bounds
    mask = obs.get(MASK) if isinstance(obs, Mapping) else None
    if spec.num is not None and mask is not None:
        parts = np.split(np.asarray(mask) != 0, np.cumsum(parsed.dim)[:-1])
        drawn = [(rng.random(len(part)) * part).argmax() for part in parts]
        return np.array(drawn, np.int64).reshape(spec.dim)
    if spec.num is not None:
        return np.asarray(rng.integers(0, spec.num, spec.dim), np.int64)
    low = np.full(spec.dim, -np.inf) if ends[0] is None else ends[0]
    high = np.full(spec.dim, np.inf) if ends[1] is None else ends[1]
    low = np.where(np.isfinite(low), low, np.minimum(-1.0, high - 1.0))
    high = np.where(np.isfinite(high), high, np.maximum(1.0, low + 1.0))
    # Between bounds that are all but equal float32 may have no number.
    return rng.uniform(low, np.maximum(low, high)).astype(np.float32)


def _builder(env_config: Mapping[str, Any]) -> Callable[[], Env]:
    return lambda: make_env(env_config)


class _StopChecking(Exception):
    """Raised when a finding makes all further checks impossible."""


@dataclass(slots=True)
class _Check:
    report: Report
    build: Callable[[], Any]
    config: Mapping[str, Any]
    seed: int
    until: float
    single: bool = False
    obs: dict[str, ArraySpec] = field(default_factory=dict)
    action_spec: dict[str, Any] = field(default_factory=dict)

    def run(self, steps: int) -> None:
        """Runs all checks, in the order in which an author would look for mistakes."""
        with contextlib.ExitStack() as stack:
            env = self._build(stack)
            self._specs(env)
            env.seed(self.seed)
            played = self._play(env, steps)
            self._check_played(played)
            if self.report.ok:
                self._compare(stack)

    def _build(self, stack: contextlib.ExitStack) -> Env:
        with self._guard("constructor"):
            built = self.build()
            if not isinstance(built, Env):
                from surreal_like.env.gym_adapter import GymAdapter

                built = GymAdapter(built, self.config)
            env: Env = built
            if not self.single:
                stack.enter_context(contextlib.closing(env))
            return env
        raise _StopChecking

    @contextlib.contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        """Turns an error of the author's code into a finding, and ends the checks."""
        try:
            yield
        except _StopChecking:
            raise
        except Exception as error:
            self.report.add("error", what, describe(error))
            raise _StopChecking from error

    def _specs(self, env: Env) -> None:
        with self._guard("specs"):
            obs_spec, self.action_spec = specs_of(env, self.config)
            self.obs = nest.flatten(parse_obs_spec(obs_spec), "obs")
            array = parse_action_spec(self.action_spec).array
        parts = ", ".join(f"{path} {one.type} {list(one.dim)}" for path, one in self.obs.items())
        self.report.add("ok", "specs", f"{parts}; actions {self.action_spec}")
        if array.num is None and not is_bounded(array):
            self.report.add(
                "advice",
                "action_spec",
                "no low and high for every element: sac, td3 and ddpg need bounds",
            )

    def _play(self, env: Env, steps: int) -> dict[str, Any]:
        """Plays random steps; returns their statistics."""
        rng = np.random.default_rng(self.seed)
        seconds: list[float] = []
        ends = 0
        obs = self._reset(env)
        for _ in range(steps):
            action = random_action(self.action_spec, rng, obs)
            began = time.monotonic()
            with self._guard("step()"):
                result = env.step(action if action.ndim else action.item())
            seconds.append(time.monotonic() - began)
            ended, obs = self._step_ended(result), result[0]
            if ended:
                ends += 1
                obs = self._reset(env)
            if time.monotonic() > self.until:
                break
        median = float(np.median(seconds)) if seconds else 0.0
        return {"steps": len(seconds), "wanted": steps, "ends": ends, "seconds": median}

    def _reset(self, env: Env) -> Any:
        """Resets an environment; returns the first observation."""
        with self._guard("reset()"):
            result: Any = env.reset()
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            self.report.add(
                "error", "reset()", f"gave {kinds(result)}, expected (observation, info)"
            )
            raise _StopChecking
        self._observe(result[0])
        return result[0]

    def _step_ended(self, result: Any) -> bool:
        if not isinstance(result, tuple) or len(result) != 5 or not isinstance(result[4], dict):
            wanted = "(observation, reward, terminated, truncated, info)"
            self.report.add("error", "step()", f"gave {kinds(result)}, expected {wanted}")
            raise _StopChecking
        obs, reward, terminated, truncated, info = result
        self._observe(obs)
        self._reward(reward)
        ended = [self._flag("terminated", terminated), self._flag("truncated", truncated)]
        for key, value in (info.get("metrics") or {}).items():
            if not isinstance(value, int | float | np.number | np.bool_):
                self.report.add(
                    "error", "metrics", f"info['metrics'][{key!r}] is {value!r}, expected a number"
                )
        return any(ended)

    def _reward(self, reward: Any) -> None:
        try:
            number = float(reward)
        except (TypeError, ValueError):
            self.report.add("error", "reward", f"is {reward!r}, expected a number")
            return
        if not np.isfinite(number):
            self.report.add("error", "reward", f"is {number}, expected a finite number")
            return
        try:
            cast("reward", number, np.float32)
        except DataError as error:
            self.report.add("error", "reward", str(error).removeprefix("reward: "))

    def _flag(self, name: str, value: Any) -> bool:
        try:
            taken = flag(name, value)
        except DataError as error:
            self.report.add("error", name, str(error).removeprefix(f"{name}: "))
            raise _StopChecking from error
        if not isinstance(value, bool | np.bool_):
            self.report.add("advice", name, f"is {value!r}, taken as {taken}")
        return taken

    def _observe(self, obs: Any) -> None:
        leaves = nest.flatten(obs, "obs")
        for path in sorted(set(leaves) ^ set(self.obs)):
            where = "not given" if path in self.obs else "given, but not in the spec"
            self.report.add("error", path, f"{where}: obs_spec has {', '.join(self.obs)}")
        for path, spec in self.obs.items():
            if path in leaves:
                self._part(path, leaves[path], spec)

    def _part(self, path: str, value: Any, spec: ArraySpec) -> None:
        try:
            converted = cast(path, value, spec.dtype)
            dtype = np.asarray(value).dtype
            if dtype != spec.dtype:
                text = f"{dtype} given, converted to {spec.type} at each step"
                self.report.add("advice", path, text)
            spec.validate(path, converted)
            if converted.shape != spec.dim:
                raise DataError(f"{path}: shape {list(converted.shape)}, expected {list(spec.dim)}")
        except DataError as error:
            self.report.add("error", path, str(error).removeprefix(f"{path}: "))

    def _check_played(self, played: Mapping[str, Any]) -> None:
        steps, ends, seconds = played["steps"], played["ends"], played["seconds"]
        if self.report.ok:
            self.report.add("ok", "steps", f"{steps} random steps, {ends} episodes ended")
        if not ends and steps == played["wanted"]:
            text = f"none ended in {steps} steps: env_config.limit_episode_length cuts them off"
            self.report.add("advice", "episodes", text)
        if seconds < _SLOW_SECONDS:
            self.report.add("ok", "step time", f"{_show(seconds)} (median)")
            return
        streams = self.config.get("num_envs") or 8
        self.report.add(
            "advice",
            "step time",
            f"{_show(seconds)} (median): {streams} environments one after the other take "
            f"{streams * seconds:.1f} s for a step; see 'My simulator is slow' in "
            "docs/your_own_environment.md (env_config.vector=process, env_config.workers, "
            "session_config.stop.eval_episodes)",
        )

    def _compare(self, stack: contextlib.ExitStack) -> None:
        """Compares copies with one seed: alone, then with another copy stepped in between."""
        if self.single:
            text = "not compared: give the class, or a function that builds it, to compare copies"
            self.report.add("advice", "copies", text)
            return
        self.until = max(self.until, time.monotonic() + 1.0)
        env = self._build(stack)
        alone = self._trace(env, None)
        again = self._trace(self._build(stack), None)
        count = min(len(alone), len(again))
        if not _equal(alone[:count], again[:count]):
            source = "self.np_random" if hasattr(env, "gym_env") else "self.rng"
            text = f"two copies with one seed differ: take all randomness from {source}"
            self.report.add("advice", "seed", text)
            return
        self.report.add("ok", "seed", f"two copies with one seed gave the same {count} steps")
        beside = self._trace(self._build(stack), self._build(stack))
        count = min(count, len(beside))
        if _equal(alone[:count], beside[:count]):
            self.report.add("ok", "copies", "two copies in one process leave each other alone")
        else:
            text = "two copies in one process change each other: they share state"
            self.report.add("error", "copies", text)

    def _trace(self, env: Env, other: Env | None) -> list[Any]:
        """Returns observations and rewards of the same actions; steps `other` in between."""
        rng, seen = np.random.default_rng(self.seed), []
        its_rng, its_obs = np.random.default_rng(self.seed + 1), None
        if other is not None:
            other.seed(self.seed + 1)
            its_obs = other.reset()[0]
        env.seed(self.seed)
        obs: Any = env.reset()[0]
        seen.append((_copy(obs), 0.0))
        with self._guard("step()"):
            for _ in range(_COMPARED_STEPS):
                action = random_action(self.action_spec, rng, obs)
                single = action if action.ndim else action.item()
                obs, reward, terminated, truncated, _ = env.step(single)
                seen.append((_copy(obs), float(reward)))
                if terminated or truncated:
                    obs = env.reset()[0]
                if other is not None:
                    action = random_action(self.action_spec, its_rng, its_obs)
                    its_obs, _, *flags = other.step(action if action.ndim else action.item())[:4]
                    its_obs = other.reset()[0] if any(flags) else its_obs
                if time.monotonic() > self.until:
                    break
        return seen


def _copy(obs: Any) -> list[npt.NDArray[Any]]:
    return [np.array(leaf) for leaf in nest.leaves(obs)]


def _equal(one: list[Any], other: list[Any]) -> bool:
    return all(
        mine[1] == theirs[1] and all(map(np.array_equal, mine[0], theirs[0]))
        for mine, theirs in zip(one, other, strict=True)
    )


def _show(seconds: float) -> str:
    milliseconds = 1e3 * seconds
    if milliseconds < 10:
        return f"{milliseconds:.2g} ms"
    return f"{milliseconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
