"""`docs/api.md`: the public names with their signatures, made of the source and its docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import surreal_like
from session.config import Config
from surreal_like.learner.updates import Updates

HEAD = """\
# API

The public names of `surreal_like`, with their signatures and the first sentence of each docstring;
`help(surreal_like.NAME)` in Python shows all of it. This page is made by `python docs/generate.py`.
Import a name from `surreal_like` itself: `from surreal_like import train`.
"""
# Classes that an author extends or calls: their methods are listed, too.
_IN_FULL = ("Agent", "Learner", "Replay", "TupleReplay", "Algorithm", "Env", "VectorEnv", "Module")
_ROLE = re.compile(r":\w+:`~?([^`]+)`")


class _Named(str):
    """A text that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def api_page() -> str:
    """The text of `docs/api.md`."""
    found = {name: getattr(surreal_like, name) for name in surreal_like.__all__}
    kinds = {
        "Functions": [
            name for name, value in found.items() if not isinstance(value, type | Config)
        ],
        "Classes": [name for name, value in found.items() if inspect.isclass(value)],
    }
    parts = [HEAD]
    for title, names in kinds.items():
        parts.append(f"## {title}\n\n" + _table((name, found[name]) for name in names))
    configs = ", ".join(f"`{name}`" for name, value in found.items() if isinstance(value, Config))
    parts.append(
        f"## Default configs\n\n{configs}: each access gives a copy. "
        "[Configuration](configuration.md) lists what they hold.\n"
    )
    for name in _IN_FULL:
        parts.append(f"## `{name}`\n\n{_sentence(found[name])}\n\n{_table(_members(found[name]))}")
    return "\n".join(parts)


def _table(rows: Iterator[tuple[str, Any]]) -> str:
    lines = [f"| `{name}{_signature(value)}` | {_sentence(value)} |" for name, value in rows]
    return (
        "| | |\n|---|---|\n"
        + "\n".join(line.replace(" | None", " \\| None") for line in lines)
        + "\n"
    )


def _members(owner: type[Any]) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of the class, in the order of the source.

    Those of `Updates` too, which is a base of `Learner` alone.
    """
    inherited = vars(Updates) if issubclass(owner, Updates) else {}
    for name, value in {**inherited, **vars(owner)}.items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not name.startswith("_") and (
            inspect.isfunction(function) or isinstance(value, property)
        ):
            yield name, function


def _signature(value: Any) -> str:
    if isinstance(value, property):
        return ""
    if inspect.isclass(value) and issubclass(value, Enum):
        return "".join(f" {word}" for word in [":", *value.__members__] if value.__members__)
    try:
        signature = inspect.signature(value)
    except ValueError:
        return ""
    shown = []
    for parameter in signature.parameters.values():
        default = parameter.default
        # A function's own text holds an address.
        default = _Named(default.__name__) if inspect.isfunction(default) else default
        if parameter.name not in ("self", "cls"):
            shown.append(parameter.replace(annotation=inspect.Parameter.empty, default=default))
    plain = signature.replace(parameters=shown, return_annotation=inspect.Signature.empty)
    return str(plain)


def _sentence(value: Any) -> str:
    """The first sentence of a docstring, in Markdown, on one line."""
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=\.)\s", text)[0]
    return _ROLE.sub(lambda found: f"`{found[1]}`", sentence).replace("``", "`").replace("|", "\\|")
