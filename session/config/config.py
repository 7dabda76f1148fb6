"""Config: a dict with attribute access that is filled from defaults and checks its values."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, Self

from session.config.file import inline_yaml, parse_yaml, read_file, write_file
from session.config.key import Key
from session.config.merge import (
    Extension,
    join,
    leaves,
    missing_error,
    nearest,
    paths,
    quote,
    scalar,
    spell_out,
)
from session.config.placeholder import (
    Verbatim,
    check_default,
    escape,
    expectation,
    is_unresolved,
    unescape,
)
from session.errors import ConfigError

_UNNAMED = "the config"


class Config(dict[str, Any]):
    """Settings: `config.key` is `config["key"]`, and a mapping inside is a Config too.

    Values are copied and converted to plain data: mappings become Configs, tuples lists, paths and
    enum members texts, numpy numbers Python numbers. A key that is a method's name is refused,
    except in sections whose keys are names of arguments or observations (`env_args`, `obs_spec`,
    ...); there it is read as `config["key"]`. A Key becomes its default; what else it says is kept
    beside the value, also in copies. Every error is a ConfigError that names the full path of the
    key. The error for a missing key names the file, too, if the config was read from one.
    """

    __slots__ = ("_keys", "_path", "_source")
    _path: str
    _source: str
    _keys: dict[str, Key]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        object.__setattr__(self, "_path", "")
        object.__setattr__(self, "_keys", {})
        object.__setattr__(self, "_source", _UNNAMED)
        super().__init__()
        self.update(*args, **kwargs)

    @classmethod
    def load_file(cls, path: str | Path) -> Self:
        """Reads a .yaml, .yml or .json file. Raises ConfigError that names file and line."""
        data = read_file(path)
        try:
            config = cls(data)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        _set_source(config, str(path))
        return config

    def dump_file(self, path: str | Path) -> None:
        """Writes a .yaml, .yml or .json file that `load_file` reads back to an equal Config."""
        _refuse_objects(self)
        write_file(path, self.to_dict())

    def extend(
        self, base: Mapping[str, Any], strict: bool = False, *, abstract: bool = False
    ) -> Self:
        """Fills in missing keys from a default config, in place, and returns self.

        strict: refuse keys that `base` does not know, except in its open dicts (`{}`, `_dict_`).
        abstract: self is itself a default, so required values may stay placeholders.

        Raises ConfigError for a value of another kind than in `base`, for all missing values
        together, and for an invalid placeholder in a default; self is then unchanged.
        """
        base = base if isinstance(base, Config) else Config(base)
        for default in (base, self) if abstract else (base,):
            check_default(default, self._path)
        extension = Extension(base, self._path, strict=strict)
        merged = extension.merge(spell_out(self, base), base, self._path)
        if extension.missing and not abstract:
            raise missing_error(extension.missing)
        _adopt(self, merged)
        adopt_keys(self, base)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Returns plain dicts and lists, as written to a file: `_int_` as a text is `\\_int_`."""
        return {key: _plain(value) for key, value in self.items()}

    def fingerprint(self) -> str:
        """SHA-256 (hex) of all settings that affect learning.

        Covers algorithm, policies and their plan, learner_config and env_config, without specs,
        recorded columns, ``workers``, and defaults of keys that came later: experiments keep the
        fingerprint that they had before. The order of keys does not matter.
        """
        _refuse_objects(self)
        plain = self.to_dict()
        for each in (plain, *(plain.get("policies") or {}).values()):
            learner = each.get("learner_config") or {}
            (learner.get("replay") or {}).pop("columns", None)
            as_numbers(learner)
            for name in ("model", "algo", "replay"):
                if isinstance(section := learner.get(name), dict):
                    learner[name] = _cover(section, f"{name}.")
        names = ("learner_config", "env_config")
        covered: dict[str, Any] = {name: _cover(plain.get(name, {})) for name in names}
        covered |= {"algorithm": plain.get("algorithm"), "policies": plain.get("policies") or {}}
        covered["policies_plan"] = plain.get("policies_plan")
        text = json.dumps(_cover(covered), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def __missing__(self, key: str) -> Any:
        path = join(self._path, key)
        near = nearest(path, paths(self, self._path))
        raise ConfigError(f"{self._source} has no key {path}{near}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # copy, pickle and others look up such names on every object; they are no keys.
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _RESERVED:
            raise _is_reserved(name, self._path)
        self[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self:
            self.__missing__(name)
        del self[name]

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            where = self._path or "the config"
            raise ConfigError(f"{where} has the key {key!r}, expected a text (write it in quotes)")
        if key in _RESERVED and _FOREIGN.isdisjoint(self._path.split(".")):
            raise _is_reserved(key, self._path)
        if isinstance(value, Key):
            self._keys[key] = value
            value = value.default
        super().__setitem__(key, _admit(value, join(self._path, key)))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Works as dict.update."""
        for other in args:
            if isinstance(other, Config):
                self._keys.update(other._keys)
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Works as dict.setdefault."""
        if key not in self:
            self[key] = default
        return self[key]

    def copy(self) -> Config:
        """Returns a deep copy."""
        copied = _config_at(self._path, self)
        if self._source != _UNNAMED:
            _set_source(copied, self._source)
        return copied

    def __or__(self, other: Mapping[str, Any]) -> Config:  # type: ignore[override]
        merged = self.copy()
        merged.update(other)
        return merged

    def __ror__(self, other: Mapping[str, Any]) -> Config:  # type: ignore[override]
        return _config_at(self._path, other) | self

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]
        self.update(other)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        keyed = {name: replace(key, default=self[name]) for name, key in _present(self)}
        return _config_at, (self._path, {**self, **keyed})

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self]


_RESERVED = frozenset(dir(Config))
# The specs follow from the rest; the number of worker processes does not affect learning.
# Keys that came later, dotted below their section -> their defaults.
_LATER: dict[str, Any] = {
    "policies": {},
    "policies_plan": None,
    "obs_keys": [],
    "multi_agent_api": "auto",
    "policy_mapping": {},
    "eval_policy_mapping": {},
    "seats": "shuffled",
    "observe_state": False,
    "agent_id": False,
    "team_reward": "own",
    "model.frozen": [],
    "model.layer_norm": False,
    "algo.normalize_advantages_per": "batch",
    "algo.normalized_reward_clip": 0.0,
    "algo.bc_weight": 0.0,
    "algo.cql_alpha": 0.0,
    "algo.cql_actions": 10,
}
# Sections that came later -> their key without which they are off.
_LATER_OFF = {"replay.demos": "path"}
# Those of them that came later only where another key stands beside them: DQN had this one before.
_LATER_BESIDE = {"algo.cql_alpha": "cql_actions"}
# Schedules of learner_config.algo that were one number before.
_WERE_NUMBERS = ("clip",)
_UNCOVERED = ("obs_spec", "action_spec", "workers", "gradient_columns")


def is_later_default(path: str, value: Any) -> bool:
    """Returns True for the default of a key that came later: without it nothing is different.

    Args:
        path: dotted key below its section.
        value: value of the key.
    """
    if path in _LATER_OFF:
        return not value.get(_LATER_OFF[path])
    return path in _LATER and bool(_LATER[path] == value)


def as_numbers(learner: dict[str, Any]) -> None:
    """Changes constant schedules of a plain `learner_config` to the numbers that they were before.

    So recorded runs and their fingerprints are still those of the same experiment.
    """
    algo = learner.get("algo") or {}
    for key in _WERE_NUMBERS:
        given = algo.get(key)
        if isinstance(given, dict) and given.get("kind") == "constant":
            algo[key] = given.get("start")


def _cover(section: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Returns what a fingerprint covers of a section, or of the mapping at ``above`` in it."""
    return {
        key: value
        for key, value in section.items()
        if above + key not in _UNCOVERED
        and (
            not is_later_default(above + key, value)
            or _LATER_BESIDE.get(above + key, key) not in section
        )
    }


# Sections whose keys are no settings: arguments and parts of an observation, named by their
# authors, and values that a run records.
_FOREIGN = frozenset(("env_args", "eval_mode", "torso_args", "args", "obs_spec", "recorded"))
# Functions over a config recurse once or twice per level; Python allows about 1000 calls.
_DEPTH_LIMIT = 100


def apply_overrides(config: Config, overrides: Sequence[str]) -> Config:
    """Sets `section.key=value` texts in `config`, in place, and returns it; values are YAML.

    Dotted keys change one entry; a mapping as a value replaces the whole mapping of that key.
    Unknown keys are not detected here but by the strict `extend` that follows.
    """
    for override in overrides:
        dotted, equals, text = override.partition("=")
        names = dotted.strip().split(".")
        if not equals or not all(names):
            raise ConfigError(f"override {override!r}: write it as section.key=value")
        section = config
        for index, name in enumerate(names[:-1]):
            section = section.setdefault(name, {})
            if not isinstance(section, Config):
                path = ".".join(names[: index + 1])
                raise ConfigError(f"override {override!r}: {path} is {quote(section)}, no mapping")
        section[names[-1]] = parse_yaml(text, f"override {override!r}")
    return config


def override(path: str, value: Any) -> str:
    """Returns the `section.key=value` text with which `apply_overrides` sets this value.

    Raises ConfigError, naming the key, for a value that no file can hold.
    """
    holder = Config({path: value})
    _refuse_objects(holder)
    return f"{path}={inline_yaml(holder.to_dict()[path])}"


def missing(config: Config) -> dict[str, str]:
    """Returns all unresolved placeholders: dotted key -> description of the expected value."""
    return {
        path: expectation(value, path).expected
        for path, value in leaves(config, config._path).items()
        if is_unresolved(value)
    }


def check_resolved(config: Config) -> None:
    """Raises ConfigError that lists all unresolved placeholders."""
    if unresolved := missing(config):
        raise missing_error(unresolved)


def explain(layers: Sequence[tuple[str, Config]]) -> dict[str, tuple[Any, str]]:
    """Returns the origin of each value: dotted key -> (value, name of its strongest layer).

    layers: (name, config), the weakest first. An override may replace a whole mapping of a file, so
    the file's layer is the file after the overrides, and the overrides alone are the layer above.
    """
    resolved: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, layer in layers:
        given = spell_out(layer, resolved)
        extension = Extension(resolved, "", strict=False)
        resolved = extension.merge(given, resolved, "")
        origin |= dict.fromkeys(leaves(given), name)
    return {path: (value, origin[path]) for path, value in leaves(resolved).items()}


def keys_of(config: Config) -> dict[str, Key]:
    """Returns dotted key -> Key for all settings and sections that have one.

    The default in a Key is that of its declaration; `config` may hold a later one.
    """
    found = {join(config._path, name): key for name, key in _present(config)}
    for value in config.values():
        found |= keys_of(value) if isinstance(value, Config) else {}
    return found


def adopt_keys(config: Config, base: Config) -> None:
    """Gives `config` the facts of the Keys of `base` where its own Keys have none, in place."""
    for name, key in _present(base):
        config._keys[name] = config._keys[name].over(key) if name in config._keys else key
    for name, inner in base.items():
        if isinstance(inner, Config) and isinstance(config.get(name), Config):
            adopt_keys(config[name], inner)


def _present(config: Config) -> list[tuple[str, Key]]:
    return [(name, key) for name, key in config._keys.items() if name in config]


def _is_reserved(key: str, path: str) -> ConfigError:
    return ConfigError(f"{join(path, key)}: {key} is a method of Config, choose another key")


def _config_at(path: str, entries: Mapping[str, Any]) -> Config:
    """Makes a Config that stores its own path in a larger one."""
    config = Config()
    object.__setattr__(config, "_path", path)
    config.update(entries)
    return config


def _set_source(value: Any, source: str) -> None:
    """Names the file from which a config was read, in place, and in all configs inside."""
    if isinstance(value, Config):
        object.__setattr__(value, "_source", source)
    inner = value.values() if isinstance(value, Config) else value
    for each in inner if isinstance(value, Config | list) else ():
        _set_source(each, source)


def _admit(value: Any, path: str) -> Any:
    """Converts a value to plain data. Raises ConfigError if it is nested too deeply."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if type(value) is str:
        return unescape(value)
    if not isinstance(value, Mapping | list | tuple):
        return scalar(value)
    if path.count(".") + path.count("[") >= _DEPTH_LIMIT:
        raise ConfigError(f"{quote(path)}: nested in more than {_DEPTH_LIMIT} levels")
    if isinstance(value, Mapping):
        return _config_at(path, value)
    return [_admit(each, f"{path}[{index}]") for index, each in enumerate(value)]


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return value.to_dict()
    if isinstance(value, str):
        return escape(value)
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _adopt(config: Config, merged: Mapping[str, Any]) -> None:
    """Sets the entries and order of `merged` in `config`; its sections stay the same objects."""
    # Copied first: an entry that is in no base is the same object in both.
    before, merged = dict(config), dict(merged)
    config.clear()
    for key, value in merged.items():
        section = before.get(key)
        if isinstance(section, Config) and isinstance(value, dict):
            _adopt(section, value)
            dict.__setitem__(config, key, section)
        else:
            config[key] = value


def _refuse_objects(config: Config) -> None:
    for path, leaf in leaves(config, config._path).items():
        if not _is_data(leaf):
            kind = type(leaf).__name__
            raise ConfigError(
                f"{path} is {quote(leaf)} of type {kind}, which no file can hold; write plain "
                "data, and name code: file.py:Name"
            )


def _is_data(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_data, value))
    if isinstance(value, Config):
        return all(map(_is_data, value.values()))
    return value is None or type(value) in (bool, int, float, str, Verbatim)
