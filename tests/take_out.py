"""Takes each add-on out of a copy of the tree, which must import, train and pass its tests.

What goes follows from the declarations: ``*/addons/NAME``, the files that it declares as its own,
its line in ``main/addons/__init__.py``, those of its public names in ``__init__.pyi``, add-ons that
need it, and tests elsewhere that import it. Other tests leave out what is about it, by
``tests/add_ons.py``. Tests of documents and of shipped manifests run in the whole tree only.

    python tests/take_out.py                    # each, and all together: imports and a training
    python tests/take_out.py gateway --tests    # one, with the quick tests of the rest
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# As a script, this file has its own folder on the path, where `session` is that of the tests.
sys.path.insert(0, str(ROOT))

from session.addons import add_ons

NAMES = tuple(add_ons())
PACKAGES = ("session", "surreal_like", "main")
# In its place: all add-ons together.
ALL = "all"
# Checks of documents, shipped manifests and the table of faults, which describe the whole tree.
WHOLE = (
    *("docs/generate.py", "tests/docs", "tests/addons/kubernetes/test_manifests.py"),
    *("tests/test_scenarios.py", "tests/test_conftest.py"),
)
TRAIN = ("train", "configs/cartpole_dqn.yaml", "--on", "serial", "--quiet", "--folder", "run")
SHORT = ("session_config.stop={iterations: 300}",)
QUICK = (
    "not slow and not root and not tmux and not kubectl and not chromium and not node and not gxx"
)


# Written into the copy, for `tests/add_ons.py`: name of an add-on -> its words on command lines.
TAKEN_OUT = "tests/taken_out.json"
WITHOUT_EDITABLE = """import sys
sys.meta_path[:] = [x for x in sys.meta_path if getattr(x, "__name__", "") != "_EditableFinder"]
"""


def goes_with(names: Iterable[str]) -> list[str]:
    """Returns add-ons, and those that need them."""
    gone = set(names)
    while more := {name for name, each in add_ons().items() if gone & {*each.needs}} - gone:
        gone |= more
    return [name for name in NAMES if name in gone]


def places(names: Iterable[str]) -> list[str]:
    """Returns the folders and files of add-ons."""
    folders = [f"{home}/addons/{name}" for name in names for home in (*PACKAGES, "tests")]
    files = [file for name in names for file in add_ons()[name].files]
    # The trained policy of an experiment goes with it.
    trained = [f"configs/trained/{Path(file).stem}" for file in files if file.endswith(".yaml")]
    return [*folders, *files, *trained]


def take_out(names: Iterable[str], copy: Path) -> None:
    """Copies the tracked files without add-ons and without the tests that need them.

    Args:
        names: Names of the add-ons.
        copy: Empty folder to write.
    """
    out = goes_with(names)
    gone = places(out)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    for file in map(Path, listed.stdout.decode().splitlines()):
        kept = not any(file.is_relative_to(place) for place in (*gone, *WHOLE))
        if kept and (ROOT / file).is_file():
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, copy / file)
    # A long import is divided, with its names in parentheses.
    rest = r"(.*\(\n(    .*\n)+\)|.*)\n"
    line = re.compile(rf'(?m)^(from|    ")\s?\w+\.addons\.({"|".join(out)})\.{rest}')
    for path in (copy / "main/addons/__init__.py", *copy.rglob("*.pyi")):
        path.write_text(line.sub("", path.read_text()))
    for path in needing(copy, (*gone, *WHOLE)):
        path.unlink()
    words = {name: words_of(name) for name in out}
    (copy / TAKEN_OUT).write_text(json.dumps(words))
    # An editable installation would find what is gone in the whole tree.
    (copy / "sitecustomize.py").write_text(WITHOUT_EDITABLE)


def words_of(name: str) -> list[str]:
    """Returns the words on command lines by which an add-on is used."""
    each = add_ons()[name]
    named = [*(found.name for found in each.commands), *(found.name for found in each.launchers)]
    return [*named, *each.algorithms]


def needing(copy: Path, gone: Iterable[str]) -> set[Path]:
    """Returns the test files that import what is gone, directly or by other test files."""
    removed = {path.removesuffix(".py").replace("/", ".") for path in gone}
    for stub in [each for package in PACKAGES for each in (ROOT / package).rglob("*.pyi")]:
        package = module_of(stub.parent, ROOT)
        for home, name in re.findall(r"(?m)^from (\S+) import (\w+)", stub.read_text()):
            if any(f"{home}.".startswith(f"{each}.") for each in removed):
                removed.add(f"{package}.{name}")
    # The one file that names tests of add-ons in functions only, which are not called without them.
    kept = copy / "tests" / "conftest.py"
    found = ((path, module_of(path, copy)) for path in (copy / "tests").rglob("*.py"))
    files = {name: path for path, name in found if path != kept}
    imports = {name: imported(path) for name, path in files.items()}
    needed: set[str] = set()
    while True:
        bad = removed | needed
        more = {
            name
            for name, modules in imports.items()
            if any(each == one or each.startswith(f"{one}.") for each in modules for one in bad)
        }
        if more <= needed:
            return {files[name] for name in needed}
        needed |= more


def module_of(path: Path, folder: Path) -> str:
    """Returns the dotted name of a file."""
    return ".".join(path.relative_to(folder).with_suffix("").parts)


def imported(path: Path) -> set[str]:
    """Returns the dotted names that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


def check(name: str, *, tests: bool) -> bool:
    """Returns True if the tree without an add-on, or all, works; prints what was run."""
    with tempfile.TemporaryDirectory(prefix="sl-out-") as scratch:
        copy = Path(scratch)
        take_out(NAMES if name == ALL else [name], copy)
        modules = [
            module_of(path, copy)
            for package in PACKAGES
            for path in sorted((copy / package).rglob("*.py"))
            if path.name != "__main__.py"
        ]
        steps = [("-c", f"import {', '.join(modules)}"), ("-m", "main.cli", *TRAIN, *SHORT)]
        if tests:
            steps.append(("-m", "pytest", "-q", "-n", "2", "-m", QUICK, "tests"))
        for step in steps:
            done = subprocess.run(
                [sys.executable, *step],
                cwd=copy,
                env={**os.environ, "PYTHONPATH": str(copy)},
                capture_output=True,
                text=True,
                check=False,
            )
            sys.stdout.write(f"{name}: {' '.join(step)[:60]}: {done.returncode}\n")
            if done.returncode:
                sys.stdout.write("\n".join((done.stdout + done.stderr).splitlines()[-40:]) + "\n")
                return False
    return True


def main() -> int:
    """Checks the add-ons that are named, by default each and all; returns 1 if one is needed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("add_ons", nargs="*", choices=[*NAMES, ALL, []], help="default: each, all")
    parser.add_argument("--tests", action="store_true", help="run the quick tests of the copy, too")
    given = parser.parse_args()
    found = [check(each, tests=given.tests) for each in given.add_ons or (*NAMES, ALL)]
    return int(not all(found))


if __name__ == "__main__":
    raise SystemExit(main())
