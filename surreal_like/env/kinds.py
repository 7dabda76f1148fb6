"""Kinds of environments, by the prefix of their name: one table, with those of add-ons."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from session.addons import collect, load
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from surreal_like.env.environment import VectorEnv
from surreal_like.env.wrappers import horizon

if TYPE_CHECKING:
    from surreal_like.env.check_findings import Report

Config = Mapping[str, Any]
# Those of the core, in the order of lists; the last one has no prefix: the place of code.
_CORE = {
    "toy": "surreal_like.env.core_kinds:Toys",
    "gym": "surreal_like.env.core_kinds:Gym",
    "gymvec": "surreal_like.env.core_kinds:GymVector",
}
_CODE = "surreal_like.env.core_kinds:Code"


class Wanted(NamedTuple):
    """An environment that is to be built.

    Args:
        name: `env_config.env_name`.
        arguments: constructor arguments, which belong to it.
        env_config: all settings.
        evaluation: True outside of training.
        num_envs: number of copies for code that steps several.
        seed: seed for copies that take one only when they are built.
    """

    name: str
    arguments: dict[str, Any]
    env_config: Config
    evaluation: bool
    num_envs: int
    seed: int

    @property
    def rest(self) -> str:
        """Name without its prefix."""
        return self.name.partition(":")[2]

    @property
    def limit(self) -> int | None:
        """Horizon of episodes [steps], or None."""
        return horizon(self.env_config.get("limit_episode_length"))


class EnvironmentKind:
    """Environments whose names have the same prefix.

    Attributes:
        batched: True if each steps N copies itself.
    """

    batched = False

    def build(self, wanted: Wanted) -> Any:
        """Builds one without wrappers: an Env, a batched one, or one of Gymnasium or PettingZoo.

        Raises:
            ConfigError: there is none of this name, or an argument is wrong.
            MissingExtra: a package is not installed.
        """
        raise NotImplementedError

    def list_names(self) -> Sequence[str]:
        """Returns the names that are known, with their prefix."""
        return ()

    def missing_extra(self, name: str) -> str:
        """Returns the extra that an environment lacks here; `?` if none would make it buildable."""
        return ""

    def make_native(
        self, env_config: Config, seeds: Sequence[int], *, seed: int, evaluation: bool
    ) -> VectorEnv | None:
        """Builds the vector code for a config; None if N single environments must be stepped."""
        return None

    def takes(self, name: str, argument: str) -> bool:
        """Returns True if the constructor of a batched environment has an argument."""
        return self.batched

    def run_tests(self, report: Report, env: Any, build: Callable[[], Any]) -> None:
        """Runs tests that fit an environment, of this kind or not; `build` makes another copy."""


@cache
def _load_kind(home: str) -> EnvironmentKind:
    kind: EnvironmentKind = load(home)()
    return kind


def list_prefixes() -> dict[str, str]:
    """Returns prefix -> place of the kind, those of add-ons last."""
    return {**_CORE, **collect("environments")}


def list_kinds() -> list[EnvironmentKind]:
    """Returns all kinds with a prefix, each once."""
    return [_load_kind(home) for home in dict.fromkeys(list_prefixes().values())]


def kind_of(name: str) -> EnvironmentKind:
    """Returns the kind of a name; without a known prefix it is the place of code."""
    return _load_kind(list_prefixes().get(name.partition(":")[0], _CODE))


def build_named(wanted: Wanted) -> Any:
    """Builds the environment of a name, see :meth:`EnvironmentKind.build`."""
    prefix = wanted.name.partition(":")[0]
    if not wanted.rest or (prefix not in list_prefixes() and _is_gym(prefix)):
        raise unknown(wanted.name)
    return kind_of(wanted.name).build(wanted)


def list_environments() -> list[str]:
    """Returns all values of `env_name` that need no code: toys, Gymnasium's, those of add-ons.

    Those whose package is neither installed nor in an extra are left out.
    """
    found = ((kind, name) for kind in list_kinds() for name in kind.list_names())
    return [name for kind, name in found if kind.missing_extra(name) != "?"]


def extra_of(name: str) -> str:
    """Returns the extra that an environment needs and that is not installed here.

    Empty if it can be built as it is; `?` if no extra makes it buildable.
    """
    return kind_of(name).missing_extra(name)


def is_installed(package: str) -> bool:
    """Returns True if a package can be imported; does not import it."""
    return importlib.util.find_spec(package) is not None


def unknown(name: str) -> ConfigError:
    """Returns the error of an unknown name, with the most similar ones."""
    return ConfigError(f"env_config.env_name: no environment {name!r}; {_suggest(name)}")


def call_checked(
    factory: Callable[..., Any], name: str, arguments: Config, where: str, *positional: Any
) -> Any:
    """Calls a constructor; raises ConfigError for arguments that it does not take."""
    try:
        inspect.signature(factory).bind(*positional, **arguments)
    except TypeError as error:
        raise ConfigError(f"{where}: {name} does not take these arguments: {error}") from error
    return factory(*positional, **arguments)


def _suggest(name: str) -> str:
    """Returns a hint for an unknown name: the most similar names, with their prefix."""
    prefix, _, rest = name.partition(":")
    if _is_gym(prefix) and rest:
        return f"write gym:{rest}"
    # Of the same kind, if there is one.
    known = [full for full in list_environments() if full.startswith(f"{prefix}:" if rest else "")]
    bare = {full.partition(":")[2]: full for full in reversed(known)}
    forms = ", ".join(f"{each}:NAME" for each in list_prefixes())
    code = "package.module:Class or file.py:Class (`surreal-like list environments`)"
    otherwise = f"expected {forms}, {code}"
    wanted, shown = rest or name, bare.__getitem__
    return did_you_mean(wanted, bare, most=3, cutoff=0.7, shown=shown, otherwise=otherwise)


def _is_gym(prefix: str) -> bool:
    return prefix.casefold() in ("gymnasium", "openai", "gym")
