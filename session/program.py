"""Program names and paths for printed command lines that work in the current folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import which

_CHECKOUT = Path(__file__).resolve().parents[1]
_DISTRIBUTION = "surreal-like"


def program(name: str) -> str:
    """Returns a program's name if it is in PATH, else its path beside this interpreter."""
    beside = Path(sys.executable).with_name(name)
    if which(name) is not None or not beside.is_file():
        return name
    return path_from_here(beside)


def interpreter() -> str:
    """Returns ``python`` if PATH leads to this interpreter, else its path."""
    found = which("python")
    same = found is not None and Path(found).absolute() == Path(sys.executable).absolute()
    return "python" if same else path_from_here(Path(sys.executable))


def shell_line(command: str, preamble_cmd: str = "") -> str:
    """Returns a shell line that runs a command, after a preamble if there is one."""
    before = preamble_cmd.strip().rstrip(";")
    return f"{{ {before}; }} && {command}" if before else command


def install_line(extra: str) -> str:
    """Returns the shell command that installs one extra for this interpreter.

    It never installs ``surreal-like`` itself from a package index, where that name is not ours.
    """
    pip = f"{interpreter()} -m pip install"
    if (_CHECKOUT / "setup.py").is_file():
        constraints = path_from_here(_CHECKOUT / "constraints.txt")
        return f'{pip} -c {constraints} -e "{path_from_here(_CHECKOUT)}[{extra}]"'
    wanted = [line.split(";")[0].strip() for line in _requirements() if f'"{extra}"' in line]
    return " ".join([pip, *(f"'{each}'" for each in wanted)])


def _requirements() -> list[str]:
    # Imported here: slow, and rarely needed.
    from importlib import metadata

    try:
        return metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []


def path_from_here(path: Path) -> str:
    """Returns a path relative to the current folder if it is below it, else unchanged."""
    # Links are not resolved: the interpreter of a virtual environment is a link.
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
