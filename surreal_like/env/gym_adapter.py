"""Gymnasium environments as an `Env`: names, missing packages, observations, actions, seeds."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from copy import deepcopy
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium import error
from gymnasium.envs.registration import EnvSpec, load_env_creator

from session.did_you_mean import did_you_mean
from session.errors import ConfigError, MissingExtra
from session.nest import Nest
from surreal_like.data.frames import frame_spec, stack_size
from surreal_like.data.spec import compare
from surreal_like.env.actions import ActionValidator, Outside
from surreal_like.env.environment import Env, Info, Step
from surreal_like.env.spaces import (
    action_bounds,
    action_writer,
    choose_parts,
    observation_reader,
    specs_from_spaces,
)
from surreal_like.env.step_results import kinds, number
from surreal_like.errors import DataError

PREFIX = "gym:"
VECTOR_PREFIX = "gymvec:"

# Names that a gymnasium release replaced; without arguments the environments are the same.
RENAMED = {"Taxi-v3": "Taxi-v4"}

_log = logging.getLogger(__name__)


class GymAdapter(Env):
    """Any Gymnasium environment, given as an object or by name (`CartPole-v1`, `gym:CartPole-v1`).

    env_config: these keys are used: `env_args` (constructor arguments, with a name only),
        `clip_action` (default True: continuous actions are clipped to their bounds; else one
        outside is an error), `obs_keys` (parts of a Dict of observations that are
        used, or left out), `obs_spec` and `action_spec` (which must agree with the environment's if
        given).

    `read_space` is the space of the observations as they come, of the parts that are used.

    Float observations become float32, discrete ones int64 counted from 0. Raises ConfigError for
    an unknown name or argument, MissingExtra for a package that is not installed, SpecError for
    spaces without a spec; `step` raises DataError for an action that is NaN or does not fit.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any] | str,
        env_config: Mapping[str, Any] | None = None,
    ) -> None:
        config = env_config or {}
        given = deepcopy(config.get("env_args"))
        self.gym_env = make_gym(env, given) if isinstance(env, str) else env
        space, actions = self.gym_env.observation_space, self.gym_env.action_space
        self.read_space = space = choose_parts(space, config.get("obs_keys") or ())
        self.obs_spec, self.action_spec = specs_from_spaces(space, actions)
        if config.get("obs_spec"):
            given = frame_spec(config["obs_spec"], stack_size(config))
            self.obs_spec = compare(given, self.obs_spec, "obs_spec")
        if config.get("action_spec"):
            self.action_spec = compare(config["action_spec"], self.action_spec, "action_spec")
        self.metadata = {**type(self).metadata, **self.gym_env.metadata}
        self._read = observation_reader(space)
        self._write = action_writer(actions)
        # Number of actions that are the same in the space; 0: none.
        self._actions = 0
        if isinstance(actions, gymnasium.spaces.Discrete) and not actions.start:
            self._actions = int(actions.n)
        outside: Outside = "clip" if config.get("clip_action", True) else "refuse"
        self._door = ActionValidator(
            self.action_spec, outside=outside, bounds=action_bounds(actions)
        )
        self._next_seed: int | None = None

    def reset(self) -> tuple[Nest, Info]:
        """Starts an episode; the first one after `seed` is drawn from that seed.

        The task is the `options` of its reset.
        """
        options = {"options": dict(self.task)} if self.task else {}
        try:
            result = self.gym_env.reset(seed=self._next_seed, **options)
        except TypeError:
            self._check_reset({"seed": None, **options})
            raise
        if not isinstance(result, tuple) or len(result) != 2:
            raise DataError(f"reset() gave {kinds(result)}, expected (observation, info)")
        obs, info = result
        self._next_seed = None
        return self._read(obs), info

    def step(self, action: Any) -> Step:
        """Takes one action, int64 or float32 in the shape of its spec."""
        if type(action) is not int or not 0 <= action < self._actions:
            action = self._write(self._door(action))
        result = self.gym_env.step(action)
        if not isinstance(result, tuple | list) or len(result) != 5:
            wanted = "(observation, reward, terminated, truncated, info)"
            raise DataError(f"step() gave {kinds(result)}, expected {wanted}")
        obs, reward, terminated, truncated, info = result
        if type(reward) is not float:
            reward = number("reward", reward)
        return self._read(obs), reward, terminated, truncated, info

    def _check_reset(self, arguments: Mapping[str, Any]) -> None:
        """Raises DataError if the environment's `reset` does not take these arguments."""
        env = self.gym_env.unwrapped
        try:
            inspect.signature(env.reset).bind(**arguments)
        except TypeError as error:
            raise DataError(
                f"reset() of {type(env).__name__} does not take {' and '.join(arguments)}: define "
                "reset(self, *, seed=None, options=None), as Gymnasium does since 0.26"
            ) from error

    def seed(self, seed: int) -> None:
        super().seed(seed)
        self._next_seed = seed

    def render(self) -> Any:
        """Returns what the environment renders, in the mode of `env_args.render_mode`."""
        return self.gym_env.render()

    def close(self) -> None:
        self.gym_env.close()


def make_gym(name: str, env_args: Mapping[str, Any] | None = None) -> gymnasium.Env[Any, Any]:
    """Builds a Gymnasium environment by name; error messages contain a remedy."""
    arguments = dict(env_args or {})
    spec = find_gym_spec(name, arguments)
    # The checker tests and warns at each step; here the same is checked once per chunk.
    arguments.setdefault("disable_env_checker", True)
    with _construction(name):
        made = gymnasium.make(spec, **arguments)
    # Mazes of gymnasium_robotics leave there the model that they have loaded, one file for each
    # environment. A name without the time is that of all environments: others may load it now.
    model = Path(getattr(made.unwrapped, "tmp_xml_file_path", ""))
    if any(map(str.isdigit, model.name)):
        model.unlink(missing_ok=True)
    return made


def find_gym_spec(name: str, env_args: Mapping[str, Any] | None = None) -> EnvSpec:
    """Returns Gymnasium's spec of `gym:NAME` or `gym:module:NAME` (imports the module)."""
    wanted = name.removeprefix(PREFIX)
    module, _, name_in_module = wanted.rpartition(":")
    _import_registrations(module, wanted)
    known = gymnasium.registry
    if name_in_module in RENAMED and name_in_module not in known and not env_args:
        newer = RENAMED[name_in_module]
        _log.warning("this gymnasium has no %s: using %s, the same", name_in_module, newer)
        name_in_module = newer
    if name_in_module not in known:
        hint = _nearest(name_in_module) if module else _registrar_of(name_in_module)
        raise ConfigError(f"env_config.env_name: no {PREFIX}{wanted}; {hint}")
    return known[name_in_module]


def native_vector(
    spec: EnvSpec, num_envs: int, env_args: Mapping[str, Any]
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Builds the vectorised implementation of an environment."""
    with _construction(spec.id):
        return gymnasium.make_vec(
            spec, num_envs=num_envs, vectorization_mode="vector_entry_point", **env_args
        )


def make_gym_vector(
    name: str, num_envs: int, env_args: Mapping[str, Any], limit: int | None
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Builds the vector entry point of `gymvec:NAME`, with the horizon `limit`.

    Raises ConfigError if it has none, or does not take the arguments or the horizon.
    """
    spec = find_gym_spec(name.removeprefix(VECTOR_PREFIX), env_args)
    if spec.vector_entry_point is None:
        raise ConfigError(
            f"env_config.env_name: {name} has no vector entry point: write {PREFIX}{spec.id}"
        )
    complete = add_limit(spec, env_args, limit)
    if complete is None:
        raise ConfigError(
            f"env_config.env_args: the vector code of {name} does not take {dict(env_args)} and "
            f"max_episode_steps {limit or spec.max_episode_steps}: write {PREFIX}{spec.id}"
        )
    return native_vector(spec, num_envs, complete)


def add_limit(
    spec: EnvSpec, arguments: Mapping[str, Any], limit: int | None
) -> dict[str, Any] | None:
    """Adds the horizon to the arguments; None if the vector code does not take them."""
    if spec.vector_entry_point is None or spec.additional_wrappers:
        return None
    own = arguments.get("max_episode_steps", spec.max_episode_steps)
    limits = [steps for steps in (own, limit) if steps is not None]
    if limits and min(limits) < 1:
        return None  # -1 removes the limit, which only single environments support
    complete = {**arguments, **({"max_episode_steps": min(limits)} if limits else {})}
    return complete if _takes(spec.vector_entry_point, {**spec.kwargs, **complete}) else None


def _takes(entry: Any, arguments: Mapping[str, Any]) -> bool:
    try:
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
        inspect.signature(creator).bind(num_envs=1, **arguments)
    except (ImportError, TypeError):
        return False  # building single environments reports what is missing or wrong
    return True


@contextlib.contextmanager
def _construction(name: str) -> Iterator[None]:
    """Turns errors of a constructor into errors whose message contains a remedy."""
    full_name = PREFIX + name.removeprefix(PREFIX)
    try:
        with warnings.catch_warnings():
            # Simulators emit deprecation warnings on import; Box2D crashes if these are errors.
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    except (error.DependencyNotInstalled, ModuleNotFoundError) as problem:
        raise _missing(full_name, problem) from problem
    except (error.Error, TypeError) as problem:
        text = str(problem).split(" was raised from")[0]
        raise ConfigError(f"env_config.env_args: {full_name} cannot be built: {text}") from problem


def _missing(name: str, problem: BaseException) -> MissingExtra:
    text = str(problem).lower()
    for word, extra in _EXTRA_OF.items():
        if word in text:
            return MissingExtra.named(name, extra)
    return MissingExtra(f"{name} needs a package that is not installed: {problem}")


# Package, or a word of the message that it is missing -> the extra that has it.
_EXTRA_OF = {
    "box2d": "box2d",
    "mujoco": "mujoco",
    "ale_py": "atari",
    "ale-py": "atari",
    "atari": "atari",
    "pygame": "video",
    "minatar": "minatar",
    "minigrid": "minigrid",
    "popgym": "environments",
    "highway_env": "environments",
    "gymnasium_robotics": "robotics",
}


def _import_registrations(module: str, wanted: str) -> None:
    """Imports the module that registers the environment: the named one, or that of ALE/."""
    source = module or ("ale_py" if wanted.startswith("ALE/") else "")
    if not source:
        return
    try:
        imported = importlib.import_module(source)
    except ModuleNotFoundError as problem:
        extra = _EXTRA_OF.get(problem.name or "")
        if extra:
            raise MissingExtra.named(PREFIX + wanted, extra) from problem
        raise ConfigError(
            f"env_config.env_name: {PREFIX}{wanted} imports {source}: {problem}"
        ) from problem
    gymnasium.register_envs(imported)
    register = getattr(imported, "register_envs", None)
    # Some packages, such as MinAtar, register nothing before they are asked to.
    if callable(register) and wanted.rpartition(":")[2] not in gymnasium.registry:
        register()


def _nearest(name: str) -> str:
    otherwise = "`surreal-like list environments` shows what there is"
    known = gymnasium.registry
    return did_you_mean(name, known, most=3, shown=PREFIX.__add__, otherwise=otherwise)


def _registrar_of(name: str) -> str:
    """Returns a hint for a name that Gymnasium has only after the import of a package."""
    packages = _packages_with_environments()
    plain = {package: package.replace("_", "").lower() for package in packages}
    word = re.split(r"[-_/]", name)[0].lower()
    for package, short in plain.items():
        if short.startswith(word) or name.replace("-", "").lower().startswith(short):
            return f"it may be registered by {package}: write {PREFIX}{package}:{name}"
    installed = f" (installed: {', '.join(packages)})" if packages else ""
    return (
        f"{_nearest(name)}; what another package registers is named {PREFIX}PACKAGE:{name}"
        f"{installed}"
    )


def _packages_with_environments() -> list[str]:
    """Import names of the installed packages that need gymnasium, without ours."""
    names: set[str] = set()
    for package in metadata.distributions():
        needs = (re.split(r"[^\w.-]", need)[0].lower() for need in package.requires or ())
        if "gymnasium" in needs and package.name != "surreal-like":
            found = (package.read_text("top_level.txt") or package.name.replace("-", "_")).split()
            names.update(found)
    return sorted(names)
