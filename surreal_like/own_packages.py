"""This library's packages, which are found also where a user's file has the name of one."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_HERE = Path(__file__).resolve().parent.parent


def load_package(name: str) -> None:
    """Loads a package of this library from its place, whatever else has its name.

    Raises:
        ImportError: another module of that name is loaded already.
    """
    if name not in sys.modules:
        place = _HERE / name / "__init__.py"
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    file = getattr(sys.modules[name], "__file__", None)
    if file is None or Path(file).resolve().parent.parent != _HERE:
        raise ImportError(
            f"another '{name}' is loaded: {file}; surreal_like needs its own, in {_HERE / name}. "
            "Rename that file or folder",
            name=name,
        )


def lead_python_path() -> None:
    """Puts this library first in PYTHONPATH if a file there has the name of one of its packages.

    Processes that are started, such as ``python -P -m main.agent``, then find the library.
    """
    folders = os.environ.get("PYTHONPATH", "")
    for name in ("main", "session") if folders else ():
        spec = PathFinder.find_spec(name, folders.split(os.pathsep))
        # Without an origin it is a folder, which is no package, and hides none.
        if spec is not None and spec.origin and not Path(spec.origin).is_relative_to(_HERE):
            os.environ["PYTHONPATH"] = os.pathsep.join([str(_HERE), folders])
            return
