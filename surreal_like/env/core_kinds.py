"""Kinds of environments of the core: toys, those of Gymnasium, and code at a place."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from session.config.named_code import load_callable
from surreal_like.data.spec import compare
from surreal_like.env.environment import VectorEnv
from surreal_like.env.kinds import (
    Config,
    EnvironmentKind,
    Wanted,
    call_checked,
    is_installed,
    unknown,
)
from surreal_like.env.registry import (
    as_batched,
    derive_specs,
    env_args,
    given_frame_spec,
    is_wrapped,
)
from surreal_like.env.wrappers import horizon
from surreal_like.errors import SpecError

if TYPE_CHECKING:
    from surreal_like.env.check_findings import Report

# Words in the entry point of a Gymnasium environment -> the package that it needs, and the extra
# that has it. The MuJoCo environments of versions 2 and 3 need the outdated mujoco-py, also those
# that Gymnasium-Robotics, once imported, has put in their place.
_OLD_MUJOCO = ("mujoco_py", "gymnasium_robotics.envs.mujoco.")
_NEEDED = {
    ("phys2d", "tabular", "GymV21", "GymV26", *_OLD_MUJOCO): ("", "?"),
    ("ale_py",): ("ale_py", "atari"),
    ("mujoco",): ("mujoco", "mujoco"),
    ("box2d",): ("Box2D", "box2d"),
}


class Toys(EnvironmentKind):
    """Toys, `toy:NAME`."""

    def build(self, wanted: Wanted) -> Any:
        """Builds a toy."""
        from surreal_like.env.toy import JOINT_TOYS, TOYS

        toys: Mapping[str, Callable[..., Any]] = {**TOYS, **JOINT_TOYS}
        if wanted.rest not in toys:
            raise unknown(wanted.name)
        toy = toys[wanted.rest]
        return call_checked(toy, wanted.name, wanted.arguments, "env_config.env_args")

    def list_names(self) -> Sequence[str]:
        """Returns the names of all toys."""
        from surreal_like.env.toy import JOINT_TOYS, TOYS

        return [f"toy:{name}" for name in (*TOYS, *JOINT_TOYS)]


class Gym(EnvironmentKind):
    """Environments that are registered in Gymnasium, `gym:NAME`."""

    def build(self, wanted: Wanted) -> Any:
        """Builds an environment of Gymnasium."""
        from surreal_like.env.gym_adapter import make_gym

        return make_gym(wanted.name, wanted.arguments)

    def list_names(self) -> Sequence[str]:
        """Returns what is registered, with the games of ale-py."""
        import gymnasium

        with contextlib.suppress(ModuleNotFoundError):
            gymnasium.register_envs(importlib.import_module("ale_py"))
        return [f"gym:{name}" for name in sorted(gymnasium.registry)]

    def missing_extra(self, name: str) -> str:
        """Returns the extra that an environment lacks here; `?` if none would do."""
        import gymnasium

        bare = name.partition(":")[2]
        if bare not in gymnasium.registry:
            return ""
        entry = f"{bare} {gymnasium.registry[bare].entry_point}"
        for words, (package, extra) in _NEEDED.items():
            if any(word in entry for word in words):
                return "" if package and is_installed(package) else extra
        return ""

    def make_native(
        self, env_config: Config, seeds: Sequence[int], *, seed: int, evaluation: bool
    ) -> VectorEnv | None:
        """Builds the vector code that Gymnasium has; None if N Envs must be stepped.

        These are environments without any, with wrappers or action repeat, with a horizon or
        arguments that its constructor does not take, or with other specs than one Env.
        """
        from surreal_like.env.gym_adapter import add_limit, find_gym_spec, native_vector

        name = str(env_config.get("env_name"))
        if is_wrapped(env_config, evaluation):
            return None
        arguments = env_args(env_config, evaluation)
        spec = find_gym_spec(name, arguments)
        complete = add_limit(spec, arguments, horizon(env_config.get("limit_episode_length")))
        if complete is None:
            return None
        vector = as_batched(native_vector(spec, len(seeds), complete), env_config)
        if not _same_as_one(vector, env_config):
            vector.close()
            return None
        vector.seed(seed)
        return vector

    def run_tests(self, report: Report, env: Any, build: Callable[[], Any]) -> None:
        """Runs Gymnasium's checker on an environment of Gymnasium."""
        import gymnasium
        from gymnasium.utils import env_checker

        from surreal_like.env.foreign_tests import run_test

        if isinstance(env, gymnasium.Env):
            skipped = {"skip_render_check": True, "skip_close_check": True}
            test = partial(env_checker.check_env, env, **skipped)
            run_test(report, "check_env", "Gymnasium's checker", test)


class GymVector(EnvironmentKind):
    """Vector code that Gymnasium has for an environment, `gymvec:NAME`."""

    batched = True

    def build(self, wanted: Wanted) -> Any:
        """Builds the vector code."""
        from surreal_like.env.gym_adapter import make_gym_vector

        return make_gym_vector(wanted.name, wanted.num_envs, wanted.arguments, wanted.limit)


class Code(EnvironmentKind):
    """Classes and functions of an author, `package.module:Class` or `file.py:Class`.

    They are given `num_envs` and `max_episode_steps` where they have arguments of these names.
    """

    def build(self, wanted: Wanted) -> Any:
        """Builds the environment."""
        factory = load_callable(wanted.name, "env_config.env_name")
        complete = add_arguments(factory, wanted.arguments, wanted.num_envs, wanted.limit)
        return call_checked(factory, wanted.name, complete, "env_config.env_args")

    def takes(self, name: str, argument: str) -> bool:
        """Returns True if the class or function has an argument."""
        return argument in _parameters(load_callable(name, "env_config.env_name"))


def _same_as_one(vector: VectorEnv, env_config: Mapping[str, Any]) -> bool:
    """True if the vector code has the specs of the config, or else of a single environment."""
    obs_spec, action_spec = given_frame_spec(env_config), env_config.get("action_spec")
    if not obs_spec or not action_spec:
        obs_spec, action_spec = derive_specs({**env_config, "obs_spec": obs_spec, "frame_stack": 0})
    try:
        vector.obs_spec = compare(obs_spec, vector.obs_spec, "obs_spec")
        vector.action_spec = compare(action_spec, vector.action_spec, "action_spec")
    except SpecError:
        return False
    return True


def _parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Returns the parameters of what may give a batched environment; none of other code."""
    parameters = inspect.signature(factory).parameters
    if isinstance(factory, type):
        vector = getattr(sys.modules.get("gymnasium.vector"), "VectorEnv", VectorEnv)
        return parameters if issubclass(factory, VectorEnv | vector) else {}
    return parameters if "num_envs" in parameters else {}


def add_arguments(
    factory: Callable[..., Any], arguments: Config, num_envs: int, limit: int | None
) -> Config:
    """Returns the arguments, with the number of copies and the horizon where they are taken."""
    parameters, added = _parameters(factory), dict(arguments)
    if "num_envs" in parameters:
        added.setdefault("num_envs", num_envs)
    if limit and "max_episode_steps" in parameters:
        added["max_episode_steps"] = min(limit, added.get("max_episode_steps") or limit)
    return added
