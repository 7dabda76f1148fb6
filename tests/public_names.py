"""Public names with their signatures, as text that is the same in all versions of Python.

``python -m tests.public_names`` writes `tests/golden/public_names.txt` anew.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from difflib import unified_diff
from io import StringIO
from pathlib import Path
from typing import Any

from main.cli import main
from main.cli.commands import all_commands

PACKAGES = ("surreal_like", "surreal_like.dataflow", "surreal_like.env", "surreal_like.network")
FILE = Path(__file__).with_name("golden") / "public_names.txt"
_OURS = ("session", "surreal_like", "main", "tests")
_NO_BASES = ("object", "ABC", "Generic", "Protocol")
_CALLED = ("__init__", "__call__")


def describe_all() -> str:
    """Returns a line for each public name, member of a class, command and option."""
    values = {
        f"{package.__name__}.{name}": getattr(package, name)
        for package in map(importlib.import_module, PACKAGES)
        for name in sorted(package.__all__)
    }
    places: dict[int, str] = {}
    for place, value in values.items():
        places.setdefault(id(value), place)
    lines: list[str] = []
    for place, value in values.items():
        first = places[id(value)]
        lines += _describe(place, value, places) if first == place else [f"{place} = {first}"]
    return "".join(f"{line}\n" for line in (*lines, *_options()))


def compare(kept: str, now: str) -> list[str]:
    """Returns the lines that are gone, with -, and those that are new, with +."""
    changes = unified_diff(kept.splitlines(), now.splitlines(), n=0, lineterm="")
    return [line for line in changes if line[0] in "+-" and line[:3] not in ("---", "+++")]


def _describe(place: str, value: Any, places: Mapping[int, str]) -> Iterator[str]:
    if inspect.isclass(value):
        yield from describe_class(place, value, places)
    elif inspect.isfunction(value):
        yield place + _signature(_parse(value))
    else:
        yield f"{place}: {type(value).__name__}"


def describe_class(place: str, kind: type[Any], places: Mapping[int, str]) -> Iterator[str]:
    """Yields the class, its constructor, and its members without underscore, inherited ones, too.

    Args:
        place: Its public name.
        kind: The class.
        places: id -> public name of other values. A base without one is not shown.
    """
    ours = [each for each in kind.__mro__ if each.__module__.partition(".")[0] in _OURS]
    others = [base for each in ours for base in each.__bases__ if base not in ours]
    bases = [places.get(id(base), "") for base in ours if base is not kind]
    bases += [base.__name__ for base in others if base.__name__ not in _NO_BASES]
    yield f"class {place}({', '.join(filter(None, bases))})"
    members: dict[str, str] = {}
    for each in reversed(ours):
        try:
            node = _parse(each)
        except OSError:
            # A class that was made at run time has no text of its own.
            continue
        if {"__dataclass_fields__", "_fields"} & vars(each).keys():
            members["__init__"] = _fields(each)
        for name, text in _members(node):
            if name in _CALLED or not name.startswith("_"):
                # An annotation in the class, or in a base, says more than an assignment.
                members[name] = text or members.get(name, "")
    for name, text in sorted(members.items()):
        yield place + text if name == "__init__" else f"{place}.{name}{text}"


def _members(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yields names and their text: attributes of objects, then those of the class, methods."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            owner, _, name = ast.unparse(each).rpartition(".")
            if owner == "self":
                yield name, ""
    for each in ast.walk(node):
        if isinstance(each, ast.AnnAssign):
            name, typed = ast.unparse(each.target), ast.unparse(each.annotation)
            if each in node.body or name.startswith("self."):
                yield name.removeprefix("self."), f": {typed}"
    for part in node.body:
        if isinstance(part, ast.Assign):
            yield from ((ast.unparse(target), "") for target in part.targets)
        elif isinstance(part, ast.FunctionDef):
            yield part.name, _method(part)


def _method(node: ast.FunctionDef) -> str:
    """Returns the text of a method; a property is shown as a value."""
    marks = {ast.unparse(mark).rpartition(".")[2] for mark in node.decorator_list}
    if marks & {"property", "cached_property"}:
        return _signature(node).removeprefix("(self)")
    if "setter" in marks:
        return ": " + ast.unparse(node.args.args[1].annotation or ast.Name("Any"))
    return _signature(node)


def _signature(node: Any) -> str:
    if not isinstance(node, ast.FunctionDef):
        raise TypeError(f"no function: {ast.unparse(node)[:80]}")
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(node.args)}){returned}"


def _fields(kind: type[Any]) -> str:
    """Returns the arguments of a dataclass or a named tuple; its attributes have the types."""
    words: list[str] = []
    for each in inspect.signature(kind).parameters.values():
        if each.kind is each.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(each.name + ("" if each.default is each.empty else "=..."))
    return f"({', '.join(words)})"


def _parse(value: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]


def _options() -> Iterator[str]:
    """Yields each command with its options, as its help lists them."""
    for name in sorted(each.name for each in all_commands()):
        with redirect_stdout(StringIO()) as shown:
            main([name, "--help"])
        yield f"surreal-like {name}"
        options = re.findall(r"^ +(?:-\w, )?(--[\w-]+)", shown.getvalue(), re.MULTILINE)
        yield from (f"surreal-like {name} {each}" for each in sorted(set(options) - {"--help"}))


if __name__ == "__main__":
    FILE.write_text(describe_all(), encoding="utf-8")
