"""Modules of this library that are loaded at their first use."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

# The folder of this library's packages.
_LIBRARY = Path(__file__).resolve().parents[1]


def attach(
    package: str, file: str, hints: Callable[[str], str] = lambda name: ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns ``__getattr__`` and ``__dir__`` of a package; its stub lists the public names.

    Type checkers read the same stub, so that each name stands in one place.

    Args:
        package: the ``__name__``.
        file: the ``__file__``; the stub lies beside it, as ``__init__.pyi``, and has lines
            ``from MODULE import NAME as NAME``.
        hints: unknown name -> text that says what to write instead; empty: the nearest name.
    """
    homes = _homes(Path(file).with_suffix(".pyi"))

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            names = {public.lower(): public for public in homes}
            near = get_close_matches(name.lower(), names, n=1)
            hint = hints(name) or (f"the nearest public name is {names[near[0]]}" if near else "")
            text = f"module '{package}' has no attribute '{name}'" + (hint and f"; {hint}")
            # `from PACKAGE import NAME` shows no AttributeError; it first looks for a submodule.
            if _is_from_import() and find_spec(f"{package}.{name}") is None:
                raise ImportError(text, name=package)
            raise AttributeError(text, name=name, obj=sys.modules[package])
        return getattr(importlib.import_module(home), name)

    def public() -> list[str]:
        return sorted(homes)

    return load, public


def _is_from_import() -> bool:
    """Returns True while ``from PACKAGE import NAME`` asks the package for a name."""
    # The caller of `load`: Python itself, or the `__getattr__` of a package around it.
    caller = sys._getframe(2)
    frames = (caller, caller.f_back)
    return "_handle_fromlist" in (each.f_code.co_name for each in frames if each is not None)


def _homes(stub: Path) -> dict[str, str]:
    """Returns public name -> module that defines it."""
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def import_own(name: str) -> ModuleType:
    """Imports a module of this library, also where a user's file has the name of its package.

    It is then loaded from its path, and that of the user is not executed.

    Args:
        name: dotted name, such as ``main.agent``.
    """
    top = name.partition(".")[0]
    path = _LIBRARY.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not path.is_file() or _origin(top) in (None, _LIBRARY / top / "__init__.py"):
        return importlib.import_module(name)
    own = f"_entry_{name}"
    if own not in sys.modules:
        spec = importlib.util.spec_from_file_location(own, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[own] = module
    return sys.modules[own]


def _origin(top: str) -> Path | None:
    """Returns the file of a package or module that is imported, or would be; None: unknown."""
    loaded = sys.modules.get(top)
    if loaded is not None:
        file = getattr(loaded, "__file__", None)
    else:
        spec = importlib.util.find_spec(top)
        file = spec.origin if spec is not None else None
    return Path(file).resolve() if file is not None else None
