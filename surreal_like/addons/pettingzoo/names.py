"""Environments of PettingZoo and of MPE2 by their names."""

from __future__ import annotations

import contextlib
import importlib
import re
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from session.did_you_mean import did_you_mean
from session.errors import ConfigError, MissingExtra
from surreal_like.env.kinds import is_installed

PREFIX = "pettingzoo:"

# Words in an entry point of PettingZoo -> the package that it needs, and the extra that has it;
# `?` where none has. All others draw with pygame.
_NEEDED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "pettingzoo.atari": ("multi_agent_ale_py", "?"),
        "pistonball": ("pymunk", "?"),
        "chess": ("chess", "?"),
        "hanabi": ("pyspiel", "?"),
        "rlcard_envs": ("rlcard", "?"),
        "multiwalker": ("Box2D", "box2d"),
        "pursuit": ("scipy", "multi"),
        "": ("pygame", "multi"),
    }
)


def list_pettingzoo() -> list[str]:
    """Returns the names of all environments that PettingZoo registers; empty if it is missing."""
    if not is_installed("pettingzoo"):
        return []
    return [PREFIX + name for name in sorted({*_registry("parallel"), *_registry("aec")})]


def extra_of_pettingzoo(name: str) -> str:
    """Returns the extra that an environment needs and that is not installed; `?` if none has it.

    Args:
        name: name with its prefix, such as `pettingzoo:classic/rps-v2`.
    """
    if not is_installed("pettingzoo"):
        return "multi"
    rest = _as_registered(name.removeprefix(PREFIX))
    spec = _registry("aec").get(rest) or _registry("parallel").get(rest)
    entry = str(getattr(spec, "entry_point", ""))
    package, extra = next(needed for word, needed in _NEEDED.items() if word in entry)
    return "" if is_installed(package) else extra


def _registry(interface: str) -> Mapping[str, Any]:
    pettingzoo = importlib.import_module("pettingzoo")
    found: Mapping[str, Any] = getattr(pettingzoo, f"{interface}_registry")
    return found


def _as_registered(rest: str) -> str:
    """Returns a name as the registries have it: PettingZoo itself writes rps_v2 and rps-v2."""
    return re.sub(r"_v(?=\d+$)", "-v", rest)


@contextlib.contextmanager
def _construction(name: str) -> Iterator[None]:
    """Turns errors of a constructor into errors whose message contains a remedy."""
    try:
        with warnings.catch_warnings():
            # Box2D and pygame warn at their import.
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    except ImportError as error:
        raise _missing(name, error) from error
    except Exception as error:
        # Another version of PettingZoo may have another class for it.
        if isinstance(error.__cause__, ImportError):
            raise _missing(name, error.__cause__) from error
        if isinstance(error, TypeError):
            text = f"env_config.env_args: {name} cannot be built: {error}"
            raise ConfigError(text) from error
        raise


def _missing(name: str, error: ImportError) -> MissingExtra:
    extra = extra_of_pettingzoo(name) if name.startswith(PREFIX) else "multi"
    if extra and extra != "?":
        return MissingExtra.named(f"environment {name}", extra)
    return MissingExtra(f"environment {name} needs a package that is not installed: {error}")


def make_pettingzoo(name: str, arguments: Mapping[str, Any], interface: str = "auto") -> Any:
    """Builds an environment of PettingZoo or of MPE2.

    Args:
        name: `pettingzoo:classic/rps-v2` or `mpe2:simple_spread_v3`.
        arguments: constructor arguments.
        interface: `env_config.multi_agent_api`; `auto` takes parallel if the environment has it.

    Raises:
        ConfigError: there is no such environment.
        MissingExtra: a package is not installed.
    """
    package, _, rest = name.partition(":")
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise MissingExtra.named(f"environment {name}", "multi") from error
    makers = _find_makers(rest) if package == "pettingzoo" else _in_module(name)
    wanted = [interface] if interface != "auto" else ["parallel", "aec"]
    maker = next((makers[each] for each in wanted if each in makers), None)
    if maker is None:
        raise ConfigError(
            f"env_config.multi_agent_api is {interface}, but {name} has only {', '.join(makers)}"
        )
    with _construction(name):
        return maker(**arguments)


def _find_makers(rest: str) -> dict[str, Any]:
    """Returns interface -> function that builds an environment in PettingZoo's registries."""
    pettingzoo: Any = importlib.import_module("pettingzoo")
    rest = _as_registered(rest)
    registries = {interface: _registry(interface) for interface in ("parallel", "aec")}
    makers = {
        interface: partial(pettingzoo.make, interface, rest)
        for interface, registry in registries.items()
        if rest in registry
    }
    if not makers:
        names = sorted({*registries["parallel"], *registries["aec"]})
        hint = did_you_mean(rest, names, otherwise="`surreal-like list environments` shows all")
        raise ConfigError(f"env_config.env_name: no environment 'pettingzoo:{rest}'; {hint}")
    return makers


def _in_module(name: str) -> dict[str, Any]:
    """Returns interface -> function of a module with `parallel_env` and `env`."""
    module = name.replace(":", ".", 1)
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"env_config.env_name: no environment {name!r}: {error}") from error
    makers = {"parallel": "parallel_env", "aec": "env"}
    return {key: getattr(found, each) for key, each in makers.items() if hasattr(found, each)}
