"""Command lines that work where they are printed: which program to call, and by which path."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import which

_CHECKOUT = Path(__file__).resolve().parents[1]
_DISTRIBUTION = "surreal-like"


def program(name: str) -> str:
    """Its name where a terminal would find it, else its path beside this interpreter."""
    beside = Path(sys.executable).with_name(name)
    if which(name) is not None or not beside.is_file():
        return name
    return path_from_here(beside)


def interpreter() -> str:
    """``python`` where a terminal would find this very interpreter, else its path."""
    found = which("python")
    same = found is not None and Path(found).absolute() == Path(sys.executable).absolute()
    return "python" if same else path_from_here(Path(sys.executable))


def install_line(extra: str) -> str:
    """The command that installs one extra into this interpreter's packages, for a shell.

    It never takes ``surreal-like`` itself from a package index, where that name is not ours.
    """
    pip = f"{interpreter()} -m pip install"
    if (_CHECKOUT / "setup.py").is_file():
        constraints = path_from_here(_CHECKOUT / "constraints.txt")
        return f'{pip} -c {constraints} -e "{path_from_here(_CHECKOUT)}[{extra}]"'
    wanted = [line.split(";")[0].strip() for line in _requirements() if f'"{extra}"' in line]
    return " ".join([pip, *(f"'{each}'" for each in wanted)])


def _requirements() -> list[str]:
    # Slow to import, and seldom needed.
    from importlib import metadata

    try:
        return metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []


def path_from_here(path: Path) -> str:
    """A path as a person in this folder would write it: relative only to what is below."""
    # Not resolved: the interpreter of a virtual environment is a link.
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
