"""How a config is filled from its base: a walk over two nested dicts that changes neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from session.errors import ConfigError
from session.placeholder import expectation, is_unresolved

Section = Mapping[str, Any]

# The keys by which a mapping is known as a schedule, and as a model that takes a user's torso.
_SCHEDULE = frozenset({"kind", "by", "start", "end", "steps", "points"})
_MODEL = frozenset({"torso", "torso_args"})


class Extension:
    """One walk: `merge` gives the filled config, `missing` then holds what is still demanded."""

    def __init__(self, base: Section, path: str, *, strict: bool) -> None:
        self._known = paths(base, path)
        self._strict = strict
        self.missing: dict[str, str] = {}

    def merge(self, user: Section, base: Section, path: str) -> dict[str, Any]:
        """The entries of `base`, replaced by those of `user`, then what only `user` has.

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
            return self._given(user[key], default, path)
        if is_unresolved(default):
            self.missing[path] = expectation(default, path).expected
        return default

    def _given(self, value: Any, default: Any, path: str) -> Any:
        """The value as the kind that `default` wants; mappings in lists are filled and checked."""
        if isinstance(value, dict) and isinstance(default, dict) and default:
            return self.merge(value, default, path)
        if isinstance(value, list) and _demands_mappings(default):
            item = default[0]
            return [self._given(each, item, f"{path}[{i}]") for i, each in enumerate(value)]
        return _checked(value, default, path)

    def _refuse_unknown(self, path: str, value: Any, beside: Sequence[str]) -> None:
        if self._strict:
            known = [*dict.fromkeys((*self._known, *beside))]
            raise ConfigError(f"unknown key {path} = {shown(value)}{nearest(path, known)}")


def _demands_mappings(default: Any) -> bool:
    """Whether it is a list whose items are mappings with placeholders, to any depth of lists."""
    if not isinstance(default, list) or not is_unresolved(default):
        return False
    return isinstance(default[0], dict) or _demands_mappings(default[0])


def spell_out(user: Section, base: Section) -> dict[str, Any]:
    """The entries of `user` with what they stand for where `base` has a mapping of a known kind.

    A number in place of a schedule is a constant one; a text in place of a model is its torso; a
    text in place of a list of texts is a list of one.
    """
    return {key: _spelled(value, base.get(key)) for key, value in user.items()}


def _spelled(value: Any, default: Any) -> Any:
    if isinstance(value, str) and _holds_texts(default) and not is_unresolved(value):
        return [value]
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
    """Whether it is a list of texts, and none of them a placeholder."""
    if not isinstance(default, list) or is_unresolved(default):
        return False
    return bool(default) and all(isinstance(each, str) for each in default)


def _checked(value: Any, default: Any, path: str) -> Any:
    """The value as the kind that `default` wants; a placeholder may stand if it takes no more."""
    wanted = expectation(default, path)
    if is_unresolved(value) and not isinstance(value, dict):
        closed = isinstance(default, dict) and default
        if expectation(value, path).narrows(wanted) and not closed:
            return value
    elif wanted.accepts(value):
        return wanted.convert(value)
    raise ConfigError(f"{path} is {shown(value)}, expected {wanted.expected}")


def missing_error(missing: Mapping[str, str]) -> ConfigError:
    """The error that lists all missing keys: dotted key -> what is expected."""
    wanted = ", ".join(f"{path} ({expected})" for path, expected in missing.items())
    return ConfigError(f"missing: {wanted}")


def scalar(value: Any) -> Any:
    """A 0-dimensional array or tensor as Python's own number; anything else as it is."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "ndim", None) == 0 else value


def leaves(config: Section, path: str = "") -> dict[str, Any]:
    """Dotted key -> value for everything that is no mapping, or an empty one."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        inner = join(path, key)
        found |= leaves(value, inner) if isinstance(value, dict) and value else {inner: value}
    return found


def paths(config: Section, path: str = "") -> list[str]:
    """The dotted keys of everything, sections too."""
    found = []
    for key, value in config.items():
        found.append(join(path, key))
        found += paths(value, found[-1]) if isinstance(value, dict) else []
    return found


def nearest(path: str, known: Sequence[str]) -> str:
    """A hint at the known key that was probably meant, or else at the keys of the same section."""
    if path in known:
        return "; write it as nested mappings, without dots"
    section, _, name = path.rpartition(".")
    close = [key for key in known if _likeness(name, key.rpartition(".")[2]) >= 0.6]
    if close:
        return f"; did you mean {max(close, key=lambda key: _likeness(path, key))}?"
    beside = [key.rpartition(".")[2] for key in known if key.rpartition(".")[0] == section]
    return f"; keys here: {', '.join(beside)}" if beside else ""


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


def join(path: str, key: str) -> str:
    """The dotted key of `key` inside the section `path`."""
    return f"{path}.{key}" if path else key


def shown(value: Any) -> str:
    """A value as an error message shows it: one line, not too long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
