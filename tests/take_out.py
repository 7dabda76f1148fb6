"""Takes each add-on out of a copy of the tree, which must import, train and pass its tests.

What goes are the folders and files of the add-on, the lines that name them in ``LISTS``, the tests
that import it, and configs that need it. Other tests leave out what is about it, by
``tests/add_ons.py``. Tests of documents and of shipped manifests run in the whole tree only.

    python tests/take_out.py                    # all add-ons, imports and a training
    python tests/take_out.py gateway --tests    # one, with its quick tests
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Add-on -> its folders and files; the first has `addon.py`.
ADD_ONS: Mapping[str, tuple[str, ...]] = {
    "analysis": (
        "surreal_like/addons/analysis",
        "surreal_like/addons/analysis/policy",
        "surreal_like/addons/analysis/script",
        "surreal_like/addons/analysis/statistics.py",
        "session/addons/analysis/charts.py",
        "session/addons/analysis/dashboard.py",
        *(f"main/cli/{name}.py" for name in ("evaluate", "play", "plot", "export", "compare")),
        "notebooks",
        "tests/addons/analysis/notebooks",
    ),
    "chaos": ("surreal_like/addons/chaos", "main/addons/chaos/chaos.py"),
    "doctor": ("surreal_like/addons/doctor", "main/addons/doctor/doctor.py"),
    "gateway": (
        "surreal_like/addons/gateway",
        "session/addons/gateway",
        "session/addons/gateway/client_tokens.py",
        "main/gateway.py",
        *(f"main/cli/{name}.py" for name in ("client", "clients", "serve")),
        "configs/cartpole_browser.yaml",
        "configs/cartpole_remote.yaml",
        "tests/addons/kubernetes/test_gateways.py",
    ),
    "gradients": (
        "surreal_like/addons/gradients",
        *(f"configs/{name}_a3c.yaml" for name in ("cartpole", "memory", "target")),
    ),
    "hindsight": (
        "surreal_like/addons/hindsight",
        *(
            f"configs/{name}.yaml"
            for name in ("bitflip_dqn", "fetchreach_sac", "untried/pointmaze_sac")
        ),
    ),
    "join": ("surreal_like/addons/join", "session/launchers/engines", "main/addons/join/join.py"),
    "kubernetes": (
        "session/addons/kubernetes",
        "session/addons/kubernetes/engine.py",
        "surreal_like/addons/kubernetes/overlay.py",
        "surreal_like/addons/gateway/pods.py",
        *(f"main/cli/{name}.py" for name in ("keys", "kubernetes_plan", "probe")),
        "k8s",
        "tests/addons/kubernetes",
    ),
    "slurm": (
        "session/addons/slurm",
        "session/addons/slurm/engine.py",
        "main/core.py",
        "tests/addons/slurm/slurm.py",
    ),
    "ray": (
        "session/addons/ray",
        "session/addons/ray/engine.py",
        "main/addons/ray/ray_run.py",
        *("tests/addons/ray/ray.py", "tests/addons/ray/ray_cluster.py"),
    ),
    "mirror": ("session/addons/mirror", "main/mirror.py"),
    "tmux": ("session/addons/tmux",),
    "tuning": (
        "surreal_like/addons/tuning",
        "surreal_like/addons/tuning_plot/plot.py",
        "main/trial.py",
        *(f"main/cli/{name}.py" for name in ("tune", "tune_table")),
        *(f"configs/cartpole_{name}.yaml" for name in ("asha", "pbt", "tpe")),
        "tests/addons/tuning/test_wrong_tunings.py",
    ),
}
# Checks of documents and shipped manifests, which describe the whole tree.
WHOLE = ("docs/generate.py", "tests/docs", "tests/addons/kubernetes/test_manifests.py")
# Files that name folders or modules, one in a line.
LISTS = ("main/addons/__init__.py", "surreal_like/__init__.pyi", "tests/test_layers.py")
TRAIN = ("train", "configs/cartpole_dqn.yaml", "--on", "serial", "--quiet", "--folder", "run")
SHORT = ("session_config.stop={iterations: 300}",)
QUICK = (
    "not slow and not root and not tmux and not kubectl and not chromium and not node and not gxx"
)


WITHOUT_EDITABLE = """import sys
sys.meta_path[:] = [x for x in sys.meta_path if getattr(x, "__name__", "") != "_EditableFinder"]
"""


def take_out(name: str, copy: Path) -> None:
    """Copies the tracked files without an add-on and without the tests that need it.

    Args:
        name: Name of the add-on.
        copy: Empty folder to write.
    """
    gone = (*ADD_ONS[name], *WHOLE)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    for file in listed.stdout.decode().splitlines():
        if not file.startswith(gone) and (ROOT / file).is_file():
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, copy / file)
    names = "|".join(path.removesuffix(".py").replace("/", "\\.") for path in gone)
    folders = "|".join(path.removeprefix("surreal_like/") for path in gone)
    line = re.compile(rf'(?m)^(from ({names})[ .].*|    "({names})\.addon",|    "({folders})",)\n')
    for each in LISTS:
        (copy / each).write_text(line.sub("", (copy / each).read_text()))
    for path in needing(copy, gone):
        path.unlink()
    # An editable installation would find what is gone in the whole tree.
    (copy / "sitecustomize.py").write_text(WITHOUT_EDITABLE)


def needing(copy: Path, gone: Iterable[str]) -> set[Path]:
    """Returns the test files that import what is gone, directly or by other test files."""
    removed = {path.removesuffix(".py").replace("/", ".") for path in gone}
    public = (ROOT / "surreal_like" / "__init__.pyi").read_text()
    homes = re.findall(r"(?m)^from (\S+) import (\w+)", public)
    removed |= {f"surreal_like.{name}" for home, name in homes if home.startswith(tuple(removed))}
    files = {module_of(path, copy): path for path in (copy / "tests").rglob("*.py")}
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
    """Returns True if the tree without an add-on works; prints what was run."""
    with tempfile.TemporaryDirectory(prefix="sl-out-") as scratch:
        copy = Path(scratch)
        take_out(name, copy)
        modules = [
            module_of(path, copy)
            for package in ("session", "surreal_like", "main")
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
    """Checks the add-ons that are named, by default all; returns 1 if one is needed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("add_ons", nargs="*", choices=[*ADD_ONS, []], help="default: all")
    parser.add_argument("--tests", action="store_true", help="run the quick tests of the copy, too")
    given = parser.parse_args()
    found = [check(each, tests=given.tests) for each in given.add_ons or ADD_ONS]
    return int(not all(found))


if __name__ == "__main__":
    raise SystemExit(main())
