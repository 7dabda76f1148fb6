"""Code that a setting names: `package.module:Name`, or a file of the user, `file.py:Name`.

One loader for algorithms, environments, wrappers, replays, networks, parts, plans, rewards of goals
and functions of a tuning.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from session.addons import add_ons, collect
from session.config.config import Config, override
from session.config.merge import quote
from session.did_you_mean import did_you_mean
from session.errors import ConfigError, SurrealError, UsageError

if TYPE_CHECKING:
    from session.folder import RunFolder

# Settings of a user: ``{"section.key": value}`` or ``["section.key=value"]``.
Overrides = Mapping[str, Any] | Sequence[str]

# Names of the modules of the user's own files begin with this.
OWN_FILE = "_algorithm_"
# Packages of this library: a user's module of such a name is never found.
LIBRARY = ("session", "surreal_like", "main")
# Values of `env_name` before a colon that are no modules, besides those of add-ons.
_ENVIRONMENTS = ("gym", "toy")


def split_place(word: str) -> tuple[str, str]:
    """Splits `file.py:Name` or `package.module:Name` into place and name; either may be empty."""
    if word.endswith(".py"):
        return word, ""
    place, _, name = word.rpartition(":")
    return (place, name) if place else (word, "")


def in_snapshot(place: str, folder: RunFolder) -> str:
    """Returns `file.py:name` with the copy of the file in the run's ``code/``, if there is one."""
    path, name = split_place(place)
    copy = folder.code / Path(path).name
    if not (path.endswith(".py") and os.path.isfile(copy)):
        return place
    return f"{copy}:{name}" if name else str(copy)


def with_kept_plan(config: Config, folder: RunFolder) -> Config:
    """Returns the config with the plans of the run's ``code/``, where they are files."""
    config = config.copy()
    policies = (config.get("policies") or {}).values()
    own = [each["learner_config"] for each in policies if "learner_config" in each]
    places = [(each, "execution_plan") for each in (config.learner_config, *own)]
    for holder, key in [*places, (config, "policies_plan")]:
        if holder.get(key) is not None:
            holder[key] = in_snapshot(holder[key], folder)
    return config


def named_places(config: Mapping[str, Any]) -> Iterator[str]:
    """Yields the place of each setting of an experiment that may name code of the user."""
    env = _section(config.get("env_config"))
    words = [
        *_learning_words(config),
        *_words_of_add_ons(config, "env_config"),
        *(_section(each).get("wrapper", each) for each in _entries(env.get("wrappers"))),
        config.get("policies_plan"),
    ]
    for policy in _section(config.get("policies")).values():
        words += [*_learning_words(_section(policy)), _section(policy).get("fixed")]
    for mapping in ("policy_mapping", "eval_policy_mapping"):
        words += _section(env.get(mapping)).values()
    name = str(env.get("env_name"))
    if name.partition(":")[0] not in (*_ENVIRONMENTS, *collect("environments")):
        words.append(name)
    for word in words:
        if not isinstance(word, str) or word.startswith("run:"):
            continue
        if ":" in word or word.endswith(".py"):
            yield split_place(word)[0]


def _learning_words(config: Mapping[str, Any]) -> list[Any]:
    """Returns the settings of an experiment, or of a policy, that may name code of learning."""
    learner = _section(config.get("learner_config"))
    replay, model, algo = (_section(learner.get(key)) for key in ("replay", "model", "algo"))
    return [
        config.get("algorithm"),
        learner.get("execution_plan"),
        learner.get("model"),
        model.get("torso"),
        algo.get("reward_function"),
        replay.get("type"),
        *(_section(each).get("part") for each in _entries(learner.get("parts"))),
        *_words_of_add_ons(config, "learner_config"),
    ]


def _words_of_add_ons(config: Mapping[str, Any], part: str) -> Iterator[Any]:
    """Yields the settings in a part of the config that name code, as add-ons declare them."""
    for path in (path for each in add_ons().values() for path in each.code):
        first, *sections, last = path.split(".")
        if first == part:
            found = _section(config.get(part))
            for inner in sections:
                found = _section(found.get(inner))
            yield found.get(last)


def _section(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _entries(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def folders_of(places: Iterator[str], import_path: Sequence[str]) -> list[str]:
    """Returns the import path, followed by the present folder if a place is a module of it.

    Args:
        places: modules and files that settings name.
        import_path: folders of the user, which are searched first.
    """
    tops = {place.partition(".")[0] for place in places if not place.endswith(".py")}
    for top in tops - {*LIBRARY, ""}:
        if _holds(".", top) and not any(_holds(folder, top) for folder in import_path):
            return [*import_path, "."]
    return list(import_path)


def _holds(folder: str, module: str) -> bool:
    """Returns True if a folder has a module or package of that name."""
    try:
        return Path(folder, f"{module}.py").is_file() or Path(folder, module).is_dir()
    except OSError:
        # For example a name that is too long for a file.
        return False


def load_named(word: str, where: str) -> Any:
    """Loads the object that a setting names.

    Args:
        word: `package.module:Name` or `file.py:Name`.
        where: setting, for messages.

    Raises:
        ConfigError: there is no such module, file or object, or its import fails.
    """
    place, name = split_place(word)
    if not place or not name:
        raise ConfigError(f"{where} is {word!r}, expected package.module:Name or file.py:Name")
    module = load_module(place, f"{where} {word!r}")
    if not hasattr(module, name):
        # Modules of a package are no candidates: a setting names a class or a function.
        known = [key for key, value in vars(module).items() if not isinstance(value, ModuleType)]
        hint = did_you_mean(name, [key for key in known if key[0] != "_"], lead="; ")
        raise ConfigError(f"{where} {word!r}: {place} has no {name!r}{hides(module) or hint}")
    return getattr(module, name)


def load_callable(word: str, where: str) -> Callable[..., Any]:
    """Loads the class or function that a setting names; arguments and errors of load_named."""
    found: Callable[..., Any] = load_named(word, where)
    if not callable(found):
        raise ConfigError(
            f"{where} {word!r} is a {type(found).__name__}, expected a class or function"
        )
    return found


def place_of(code: Any, what: str) -> str:
    """Returns the text with which :func:`load_named` finds a class or function in any process.

    Args:
        code: class or function at the top level of a module or a script.
        what: argument that it is, for messages.

    Raises:
        UsageError: other processes cannot import it; the message gives the reason and a remedy.
    """
    name, module = getattr(code, "__qualname__", None), getattr(code, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str):
        kind = type(code).__name__
        arguments = ", and its arguments as env_config.env_args" if what == "env" else ""
        raise UsageError(
            f"{what} is an instance of {kind}, but each process builds its own: give the class, "
            f"{what}={kind}{arguments}"
        )
    if "<" in name or "." in name:
        raise UsageError(
            f"{what} is {name}, which other processes cannot import: define it at the top level of "
            "a file, with a name"
        )
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if module == "__main__" and not (file and os.path.isfile(file)):
        raise UsageError(
            f"{what} is {name} of an interactive session, which other processes cannot import: "
            f"write it into a file (in a notebook with %%writefile), and give {what}='FILE.py:"
            f"{name}'"
        )
    if getattr(loaded, name, None) is not code:
        raise UsageError(f"{what} is {name}, but {module} has another object of that name")
    # Other processes search neither the folder of a script nor what it has added to sys.path.
    if "." in module or not file or Path(file).suffix != ".py" or "site-packages" in file:
        return f"{module}:{name}"
    path = Path(file).resolve()
    here = Path.cwd().resolve()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{name}"


def as_overrides(overrides: Overrides) -> list[str]:
    """Returns overrides as ``key=value`` words; a mapping's values become YAML.

    Raises:
        ConfigError: a value that no file can hold.
        UsageError: as :func:`place_of`, for a class or function among the values.
    """
    if isinstance(overrides, str):
        return [overrides]
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [override(key, _named(value, key)) for key, value in overrides.items()]


def _named(value: Any, key: str) -> Any:
    """Returns a value with the places of the classes and functions in it."""
    if isinstance(value, Mapping):
        return {name: _named(each, f"{key}.{name}") for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_named(each, key) for each in value]
    return place_of(value, key) if isinstance(value, type | FunctionType) else value


def check_no_import(what: str) -> None:
    """Raises UsageError while a file of the user is imported as a module: it would start itself."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and str(frame.f_globals.get("__name__")).startswith(
            OWN_FILE
        ):
            raise UsageError(
                f"{frame.f_code.co_filename} is imported by each process, and its top level {what}:"
                " write that below if __name__ == '__main__':"
            )
        frame = frame.f_back  # type: ignore[assignment]


def load_module(place: str, what: str) -> ModuleType:
    """Imports a module by its dotted name, or a file by its path.

    Args:
        place: `package.module` or `file.py`.
        what: setting and value, for messages.

    Raises:
        ConfigError: there is none, or its import fails.
    """
    if place.endswith(".py"):
        return _load_file(Path(place), what)
    try:
        return importlib.import_module(place)
    except SurrealError:
        raise
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and place.startswith(str(error.name))
        reason = f"{error}{_remedy(place)}" if missing else _show(error)
        raise ConfigError(f"{what} cannot be imported: {reason}") from error


def _remedy(place: str) -> str:
    top, dotted, _ = place.partition(".")
    if dotted and (hidden := hides(sys.modules.get(top))):
        return hidden
    return (
        "; write file.py:Name, or add the folder that holds the module: "
        "'session_config.import_path=[FOLDER]'"
    )


def hides(module: ModuleType | None) -> str:
    """Returns a remedy if a module of the user in the present folder has this module's name."""
    if module is None:
        return ""
    top = module.__name__.partition(".")[0]
    package = sys.modules.get(top)
    # A package without __init__.py has only folders.
    found = getattr(package, "__file__", None) or next(iter(getattr(package, "__path__", ())), None)
    own = next((each for each in (Path(f"{top}.py"), Path(top)) if each.exists()), None)
    if own is None or found is None or Path(found).resolve().is_relative_to(own.resolve()):
        return ""
    owner = "surreal_like's own package" if top in LIBRARY else "another module"
    remedy = f"name it {own}:NAME or " if own.suffix else ""
    return (
        f": '{top}' is {owner} ({found}), which hides {own} of the present folder; {remedy}"
        f"rename {own}"
    )


def _load_file(path: Path, what: str) -> ModuleType:
    """Imports a file under a unique module name, once per process."""
    resolved = _find(path)
    if resolved is None:
        raise ConfigError(f"{what}: there is no such file ({path.expanduser().absolute()})")
    digest = hashlib.sha256(str(resolved).encode()).hexdigest()[:8]
    module_name = f"{OWN_FILE}{resolved.stem}_{digest}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    # The folder of the file is its package: `from .nets import Net` imports a neighbour.
    spec = importlib.util.spec_from_file_location(
        module_name, resolved, submodule_search_locations=[str(resolved.parent)]
    )
    if spec is None or spec.loader is None:
        raise ConfigError(f"{what} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module during its import.
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module_name]
        if isinstance(error, SurrealError) or not isinstance(error, Exception):
            raise
        raise ConfigError(
            f"{what} cannot be loaded: {_show(error)}{_beside(resolved, error)}"
        ) from error
    return module


def _beside(file: Path, error: Exception) -> str:
    """Returns a remedy if a file imports its neighbour as if their folder were searched."""
    name = error.name if isinstance(error, ImportError) else None
    top = (name or "").partition(".")[0]
    if not top or not _holds(str(file.parent), top):
        return ""
    if top in LIBRARY:
        return f": that is surreal_like's own; write 'from .{name} import ...'"
    if not isinstance(error, ModuleNotFoundError):
        return ""
    return f"; write 'from .{name} import ...', or 'session_config.import_path=[{file.parent}]'"


def _find(path: Path) -> Path | None:
    """Returns the file at its path; if it is gone, its copy in the run's ``code/``.

    The folders that were added to Python's search path last, such as ``code/``, come first.
    """
    for each in (path.expanduser(), *(Path(folder, path.name) for folder in reversed(sys.path))):
        try:
            if each.is_file():
                return each.resolve()
        except OSError:
            continue
    return None


def _show(error: Exception) -> str:
    """Formats the error's type and message, and the line of the user's code that raised it."""
    place = ""
    # The message of a syntax error already has the position.
    trace = error.__traceback__ if not isinstance(error, SyntaxError) else None
    while trace is not None:
        place = f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{place}"


def find_plan(name: str) -> Callable[[Any], Any]:
    """Returns the function that `learner_config.execution_plan` names; errors of find_function."""
    return find_function(name, "learner_config.execution_plan", "learner")


def find_function(name: str, key: str, argument: str) -> Callable[[Any], Any]:
    """Returns the function of one argument that a setting names.

    Args:
        name: `file.py:function` or `package.module:function`.
        key: key of the setting, for messages.
        argument: name of the argument, for messages.

    Raises ConfigError if there is none, if its module cannot be imported, or if it does not take
    one argument.
    """
    found = load_callable(name, key)
    check_arguments(f"{key} {name!r}", found, (argument,))
    return found


def check_arguments(what: str, function: Any, names: tuple[str, ...]) -> None:
    """Raises ConfigError unless a function can be called with so many arguments."""
    wanted = f"expected a function of ({', '.join(names)})"
    if not callable(function):
        raise ConfigError(f"{what} is {quote(function)}, {wanted}")
    try:
        inspect.signature(function).bind(*names)
    except TypeError as error:
        raise ConfigError(f"{what} takes other arguments ({error}), {wanted}") from None
