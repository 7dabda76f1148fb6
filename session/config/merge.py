"""Merges a config with its base: a recursion over two nested dicts that changes neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from session.config.file import inline_yaml, plain_value
from session.config.placeholder import expectation, is_unresolved
from session.did_you_mean import did_you_mean
from session.errors import ConfigError

Section = Mapping[str, Any]

# Dotted key that was removed -> remedy.
_REMOVED = {
    "session_config.launcher.on_sigterm": "remove it: on SIGTERM the learner saves and is started "
    "again, SIGINT ends the run",
    "env_config.drop_keys": "name the keys that stay in env_config.obs_keys",
    "learner_config.algo.reward_shift": "add the constant in a wrapper of the environment",
    "session_config.agent.threads": "remove it: an agent computes with one thread",
    "session_config.evaluator.threads": "remove it: an evaluator computes with one thread",
    "session_config.heartbeat.interval": "remove it: it is 1 s, or a fifth of heartbeat.timeout",
    "session_config.launcher.restart_window_seconds": "remove it: the window is 60 s",
    "session_config.security.handshake_seconds": "remove it: the limit is 5 s",
    "session_config.sender.failover_seconds": "remove it: agents wait 5 s for their shard",
    "learner_config.max_bad_updates": "remove it: the limit is 10 updates",
    "learner_config.replay.evict_rule.max_age_seconds": "remove it: replay.age.max_versions keeps "
    "old rows out of batches",
    "learner_config.replay.evict_rule.max_rows": "set replay.capacity",
    "learner_config.replay.tolerance": "remove it: it is chosen by min_size, chunks and requests",
    "session_config.heartbeat.starting_seconds": "remove it: it is 120 s, or heartbeat.timeout if "
    "that is longer",
    "session_config.loggerplex.rotate_bytes": "remove it: log files are rotated at 50 MB",
    "session_config.replay.high_water_mark": "remove it: it is 8 messages",
    "session_config.sender.max_unacked_bytes": "set sender.max_unacked_chunks; the limit in bytes "
    "is 64 MiB",
    "session_config.sender.resend_seconds": "remove it: it is 2 s",
    "session_config.tensorplex.bins": "remove it: a chart has all agents up to 8, else 8",
    "session_config.tensorplex.buffer": "remove it: a client keeps 10,000 records",
    "session_config.trace_every": "remove it: one chunk in 16 has time stamps",
    "session_config.loggerplex.overwrite": "remove it: a run appends to its log files, and a new "
    "run has a folder of its own",
}
# Keys that identify a mapping as a schedule, and as a model that accepts a user's torso.
_SCHEDULE = frozenset({"kind", "by", "start", "end", "steps", "points"})
_MODEL = frozenset({"torso", "torso_args"})
# Between `algo`, which is no misspelt `algorithm`, and `bb` for `b`.
_SIMILAR = 0.65
_EXAMPLE = "{kind: piecewise, points: [[0, 0.001], [1000, 0.0001]]}"


class Extension:
    """One merge: `merge` returns the filled config, `missing` then holds the required keys."""

    def __init__(self, base: Section, path: str, *, strict: bool) -> None:
        self._known = paths(base, path)
        self._strict = strict
        self.missing: dict[str, str] = {}

    def merge(self, user: Section, base: Section, path: str) -> dict[str, Any]:
        """Returns the entries of `base`, replaced by those of `user`, then other keys of `user`.

        Raises ConfigError for the first value, or if strict the first key, that `base` forbids.
        """
        if not base:
            return dict(user)
        merged = {key: self._entry(user, base, key, join(path, key)) for key in base}
        for key, value in user.items():
            if key not in base:
                self._refuse_unknown(join(path, key), value, [join(path, each) for each in base])
                merged[key] = value
        return merged

    def _entry(self, user: Section, base: Section, key: str, path: str) -> Any:
        default = base[key]
        is_section = isinstance(default, dict) and bool(default)
        if is_section and isinstance(user.get(key, {}), dict):
            return self.merge(user.get(key, {}), default, path)
        if key in user:
            return self._find_given(user[key], default, path)
        if is_unresolved(default):
            self.missing[path] = expectation(default, path).expected
        return default

    def _find_given(self, value: Any, default: Any, path: str) -> Any:
        """Converts a value to the kind of `default`; fills and checks mappings in lists."""
        if isinstance(value, dict) and isinstance(default, dict) and default:
            return self.merge(value, default, path)
        if isinstance(value, list) and _demands_mappings(default):
            item = default[0]
            return [self._find_given(each, item, f"{path}[{i}]") for i, each in enumerate(value)]
        return _checked(value, default, path)

    def _refuse_unknown(self, path: str, value: Any, beside: Sequence[str]) -> None:
        if self._strict:
            known = [*dict.fromkeys((*self._known, *beside))]
            hint = f"; {_REMOVED[path]}" if path in _REMOVED else nearest(path, known)
            raise ConfigError(f"unknown key {path} = {quote(value)}{hint}")


def _demands_mappings(default: Any) -> bool:
    """True for a list, nested to any depth, whose items are mappings with placeholders."""
    if not isinstance(default, list) or not is_unresolved(default):
        return False
    return isinstance(default[0], dict) or _demands_mappings(default[0])


def spell_out(user: Section, base: Section) -> dict[str, Any]:
    """Expands the short forms in `user` for which `base` has a known structure.

    A number in place of a schedule is a constant schedule; a text in place of a model is its torso;
    a text in place of a list of texts is a list with one item; null in place of a text that is
    empty by default is the empty text.
    """
    return {key: _spell(value, base.get(key)) for key, value in user.items()}


def with_settings(config: Any, settings: Mapping[str, Any]) -> Any:
    """Returns a copy of a resolved config with other values.

    Args:
        config: a Config.
        settings: dotted key -> value; a number may stand for a schedule.
    """
    changed = config.copy()
    for key, value in settings.items():
        *sections, last = key.split(".")
        section = changed
        for name in sections:
            section = section[name]
        spelled, was = _spell(value, section[last]), section[last]
        both = isinstance(spelled, dict) and isinstance(was, dict)
        section[last] = {**was, **spelled} if both else spelled
    return changed


def _spell(value: Any, default: Any) -> Any:
    if isinstance(value, str) and _holds_texts(default) and not is_unresolved(value):
        return [value]
    if value is None and default == "":
        return ""
    if not isinstance(default, dict):
        return value
    if isinstance(value, dict):
        return spell_out(value, default)
    if isinstance(value, int | float) and not isinstance(value, bool) and {*default} >= _SCHEDULE:
        return {"kind": "constant", "start": value}
    if isinstance(value, str) and {*default} >= _MODEL:
        return {"torso": value}
    return value


def _holds_texts(default: Any) -> bool:
    """True for a list of texts without placeholders."""
    if not isinstance(default, list) or is_unresolved(default):
        return False
    return bool(default) and all(isinstance(each, str) for each in default)


def _checked(value: Any, default: Any, path: str) -> Any:
    """Converts a value to the kind of `default`; a placeholder may be as narrow or narrower."""
    wanted = expectation(default, path)
    if is_unresolved(value) and not isinstance(value, dict):
        closed = isinstance(default, dict) and default
        if expectation(value, path).narrows(wanted) and not closed:
            return value
    elif wanted.accepts(value):
        return wanted.convert(value)
    in_quotes = isinstance(value, str) and plain_value(value) != value
    hint = " (it is a text: leave its quotes out)" if in_quotes else ""
    expected = wanted.expected
    if isinstance(default, dict) and {*default} >= _SCHEDULE:
        expected = f"a number or {expected}, such as {_EXAMPLE}"
    elif isinstance(default, dict) and default:
        expected += f" of {', '.join(default)}{_example(default)}"
    raise ConfigError(f"{path} is {quote(value)}{hint}, expected {expected}")


def _example(default: Section) -> str:
    """Returns the first entry of a section as an example; empty if it has no plain value."""
    name, value = next(iter(default.items()))
    plain = type(value) in (bool, int, float, str) and not is_unresolved(value)
    return f", such as {inline_yaml({name: value})}" if plain else ""


def missing_error(missing: Mapping[str, str]) -> ConfigError:
    """Makes the error that lists all missing keys: dotted key -> expected value."""
    wanted = ", ".join(f"{path} ({expected})" for path, expected in missing.items())
    return ConfigError(f"missing: {wanted}")


def scalar(value: Any) -> Any:
    """Converts a 0-dimensional array or tensor to a Python number; other values stay."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "ndim", None) == 0 else value


def leaves(config: Section, path: str = "") -> dict[str, Any]:
    """Returns dotted key -> value for all values that are no mapping, or an empty one."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        inner = join(path, key)
        found |= leaves(value, inner) if isinstance(value, dict) and value else {inner: value}
    return found


def paths(config: Section, path: str = "") -> list[str]:
    """Returns all dotted keys, including those of sections."""
    found = []
    for key, value in config.items():
        found.append(join(path, key))
        found += paths(value, found[-1]) if isinstance(value, dict) else []
    return found


def nearest(path: str, known: Sequence[str]) -> str:
    """Returns a hint: the most similar key of the same section, the key of this name if only one
    other section has it, or else the keys of the section.
    """
    if path in known:
        return "; write it as nested mappings, without dots"
    section, _, name = path.rpartition(".")
    beside = {key.rpartition(".")[2]: key for key in known if key.rpartition(".")[0] == section}
    similar = did_you_mean(name, beside, lead="; ", cutoff=_SIMILAR, shown=beside.__getitem__)
    same = [key for key in known if key.rpartition(".")[2] == name]
    if not similar and len(same) == 1:
        return f"; did you mean {same[0]}?"
    return similar or (f"; keys here: {', '.join(beside)}" if beside else "")


def join(path: str, key: str) -> str:
    """Returns the dotted key of `key` inside the section `path`."""
    return f"{path}.{key}" if path else key


def within(path: str, place: str) -> bool:
    """Returns True if a dotted key is that of a place, or below it."""
    return f"{path}.".startswith(f"{place}.")


def quote(value: Any) -> str:
    """Formats a value for an error message: one line, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
