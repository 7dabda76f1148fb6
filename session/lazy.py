"""Packages whose public names are loaded at their first use."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns ``__getattr__`` and ``__dir__`` of a package; its stub lists the public names.

    Type checkers read the same stub, so that each name stands in one place.

    Args:
        package: its ``__name__``.
        file: its ``__file__``; the stub lies beside it, as ``__init__.pyi``, and has lines
            ``from MODULE import NAME as NAME``.
    """
    homes = _homes(Path(file).with_suffix(".pyi"))

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            names = {public.lower(): public for public in homes}
            near = get_close_matches(name.lower(), names, n=1)
            hint = f"; the nearest public name is {names[near[0]]}" if near else ""
            raise AttributeError(
                f"module '{package}' has no attribute '{name}'{hint}",
                name=name,
                obj=sys.modules[package],
            )
        return getattr(importlib.import_module(home), name)

    def public() -> list[str]:
        return sorted(homes)

    return load, public


def _homes(stub: Path) -> dict[str, str]:
    """Returns public name -> module that defines it."""
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: str(node.module) for node in imports for alias in node.names}
