"""Measures the structure of a checkout: files, lines, imports between folders, config keys.

``python tests/structure.py [CHECKOUT]`` prints one row per measure. ``--run`` trains CartPole
for 20 seconds as well, and adds the lines of this project that each process has in memory.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGES = ("session", "surreal_like", "main")
SECONDS = 20
LOADED = (
    "surreal_like.algorithm.dqn",
    "session",
    "main.cli",
    "main.ps",
    "main.replay",
    "main.supervisor",
    "main.agent",
    "main.learner",
)
# Runs in each process: a forked child has no thread of its parent.
WATCH = """
import os, sys, threading, time
def watch():
    def write():
        time.sleep({seconds})
        files = {{getattr(m, "__file__", None) for m in list(sys.modules.values())}}
        with open(os.path.join({out!r}, str(os.getpid())), "w") as file:
            file.write("\\n".join(sorted(filter(None, files))))
    threading.Thread(target=write, daemon=True).start()
os.register_at_fork(after_in_child=watch)
watch()
"""

# Prints the number of base keys; with an argument, of those of the core alone.
KEYS = """
import sys, types
import session.addons
if sys.argv[1:]:
    session.addons.import_own = lambda name: types.SimpleNamespace(MODULES=())
    session.addons.add_ons.cache_clear()
    for name in [each for each in sys.modules if each.startswith("session.config")]:
        del sys.modules[name]
from session.config import defaults
from session.config.merge import leaves
parts = ("session", "learner", "env")
print(sum(len(leaves(dict(getattr(defaults, f"BASE_{p.upper()}_CONFIG")), p)) for p in parts))
"""

# Prints kind of a component -> own files of which it runs code while CartPole is learned.
WAY = """
import json, sys, tempfile
from collections import Counter, defaultdict
from session.process.service import Frame
from surreal_like import train
found, turns, step = defaultdict(set), Counter(), Frame.step
def spy(frame):
    component = frame.context.component
    turns[component.name] += 1
    files = found[component.kind]
    def note(at, event, arg):
        if event == "call":
            files.add(at.f_code.co_filename)
    if turns[component.name] > 400:
        sys.setprofile(note)
    try:
        return step(frame)
    finally:
        sys.setprofile(None)
Frame.step = spy
with tempfile.TemporaryDirectory() as folder:
    train("configs/cartpole_dqn.yaml", folder=folder + "/run", launcher="serial",
        overrides={"session_config.stop": {"iterations": 600, "eval_episodes": 1}})
print(json.dumps({kind: sorted(files) for kind, files in found.items()}))
"""


class Tree:
    """The Python files of one checkout.

    Args:
        root: its folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))
        self.modules = {self._name(path): path for path in self.files}
        self.trees = {path: ast.parse(path.read_text()) for path in self.files}

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def imports(self, path: Path, *, at_import: bool) -> set[str]:
        """Returns the own modules that a file imports.

        Args:
            path: the file.
            at_import: True leaves out imports in functions and for annotations.
        """
        found = set()
        for node in _statements(self.trees[path]) if at_import else ast.walk(self.trees[path]):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {name for name in names if name in self.modules} or {node.module}
        return found & set(self.modules)

    def lines(self, path: Path) -> int:
        return len(path.read_text().splitlines())

    def loaded_by(self, module: str) -> set[str]:
        """Returns the own modules that an import of a module loads, late imports left out."""
        seen: set[str] = set()
        waiting = [module]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            waiting += [".".join(name.split(".")[:i]) for i in range(1, name.count(".") + 1)]
            waiting += self.imports(self.modules[name], at_import=True)
        return seen


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields the statements that run at import, those for annotations left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (n for each in node.orelse for n in ast.walk(each))
            continue
        yield node
        yield from _statements(node)


def code_lines(path: Path) -> int:
    """Returns the number of lines with code: no blank line, comment or docstring."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    first = True
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in (tokenize.ENCODING, tokenize.ENDMARKER):
                continue
            if token.type in skipped:
                first = first or token.type in (tokenize.NEWLINE, tokenize.INDENT)
                continue
            if not (first and token.type == tokenize.STRING):
                lines |= set(range(token.start[0], token.end[0] + 1))
            first = False
    return len(lines)


def folder_of(module: str) -> str | None:
    """Returns the folder inside surreal_like, None for other modules and its top level."""
    parts = module.split(".")
    return parts[1] if parts[0] == "surreal_like" and len(parts) > 2 else None


def circles(tree: Tree) -> list[list[str]]:
    """Returns the circles of modules, imports for annotations and in functions included."""
    graph = {
        name: {each for each in tree.imports(path, at_import=False) if each != name}
        for name, path in tree.modules.items()
        if not path.name.startswith("__init__")
    }
    graph = {name: {each for each in targets if each in graph} for name, targets in graph.items()}
    return [sorted(each) for each in components(graph) if len(each) > 1]


def components(graph: dict[str, set[str]]) -> list[set[str]]:
    """Returns the strongly connected components."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in graph[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            found.append(set(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in index:
            visit(name)
    return found


def single_importers(tree: Tree) -> int:
    """Returns the number of modules that exactly one other module imports."""
    users: defaultdict[str, set[str]] = defaultdict(set)
    for name, path in tree.modules.items():
        for target in tree.imports(path, at_import=False):
            users[target].add(name)
    return sum(len(each) == 1 for each in users.values())


def used_by_add_ons_only(tree: Tree, core: Iterable[Path]) -> list[str]:
    """Returns the modules of the core that only add-ons use, by an import or by name in a text."""
    stubs = [each.read_text() for name in PACKAGES for each in (tree.root / name).rglob("*.pyi")]
    public = set(re.findall(r"(?m)^from (\S+) import", "\n".join(stubs)))
    left = {name for name, path in tree.modules.items() if path in {*core}}
    users: defaultdict[str, set[str]] = defaultdict(set)
    for user, path in tree.modules.items():
        nodes = ast.walk(tree.trees[path])
        texts = {each.value for each in nodes if isinstance(each, ast.Constant)}
        named = {each.partition(":")[0] for each in texts if isinstance(each, str)}
        for target in tree.imports(path, at_import=False) | named & {*tree.modules}:
            users[target].add(user)
    found: set[str] = set()
    candidates = {each for each in left - public if tree.modules[each].stem != "__init__"}
    while more := {each for each in candidates - found if users[each] and not users[each] & left}:
        found |= more
        left -= more
    return sorted(found)


def folder_circles(tree: Tree) -> list[set[str]]:
    graph: defaultdict[str, set[str]] = defaultdict(set)
    for name, path in tree.modules.items():
        source = folder_of(name)
        for target in tree.imports(path, at_import=False):
            to = folder_of(target)
            if source and to and to != source:
                graph[source].add(to)
                graph[to]
    return [each for each in components(dict(graph)) if len(each) > 1]


def base_keys(root: Path, *words: str) -> str:
    """Returns the number of base keys of a checkout, with a word of its core alone."""
    command = [sys.executable, "-c", KEYS, *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "it has no add-ons"


def core_files(tree: Tree) -> list[Path]:
    """Returns the files that are left when all declared add-ons are taken out."""
    code = "from tests.take_out import NAMES, places; print(*places(NAMES))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tree.root, capture_output=True, text=True, check=True)
    places = [tree.root / place for place in done.stdout.split()]
    return [path for path in tree.files if not any(map(path.is_relative_to, places))]


def loaded(root: Path, module: str) -> int:
    """Returns the number of own files that a fresh interpreter has after an import."""
    own = "each for each in list(sys.modules.values()) if getattr(each, '__file__', None)"
    code = f"import {module}, sys; print(*(each.__file__ for each in ({own})), sep=chr(10))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    packages = tuple(f"{root / package}{os.sep}" for package in PACKAGES)
    return sum(file.startswith(packages) for file in done.stdout.splitlines())


_POLICY_TESTS = ("DEFAULT_POLICY", "policies_of(", "agents_of(", "'policies'")


def policy_branches(tree: Tree) -> int:
    """Returns the number of conditions that tell one policy from several."""
    found = 0
    for parsed in tree.trees.values():
        for node in ast.walk(parsed):
            tests: list[ast.expr] = []
            if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
                tests = [node.test]
            elif isinstance(node, ast.comprehension):
                tests = node.ifs
            texts = map(ast.unparse, tests)
            found += sum(any(name in text for name in _POLICY_TESTS) for text in texts)
    return found


def way(root: Path) -> dict[str, int]:
    """Returns the number of own files that run while CartPole is learned, by kind of process.

    A row passes agent, replay and learner; what runs only at the start or the end is left out.
    """
    command = [sys.executable, "-c", WAY]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    packages = tuple(f"{root / package}{os.sep}" for package in PACKAGES)
    own = {
        kind: {file for file in files if file.startswith(packages)}
        for kind, files in json.loads(done.stdout.splitlines()[-1]).items()
    }
    row = own["agent"] | own["replay"] | own["learner"]
    return {"agent, replay and learner": len(row)} | {k: len(v) for k, v in own.items()}


def settings(root: Path) -> int:
    """Returns the number of settings that ``plan --explain`` shows of CartPole."""
    words = ("plan", "configs/cartpole_dqn.yaml", "--explain")
    command = [sys.executable, "-m", "main.cli", *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return sum("_config." in line for line in done.stdout.splitlines())


def hooks(tree: Tree) -> int:
    """Returns the number of hooks."""
    nodes = ast.walk(tree.trees[tree.root / "session/addons/hooks.py"])
    types = [ast.unparse(node.annotation) for node in nodes if isinstance(node, ast.AnnAssign)]
    return sum(each.startswith("Hook[") for each in types)


def in_memory(tree: Tree, seconds: int) -> dict[str, tuple[int, int]]:
    """Trains CartPole; returns process -> own files and lines in its memory after some seconds."""
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as site:
        Path(site, "sitecustomize.py").write_text(WATCH.format(seconds=seconds, out=out))
        folder = Path(out, "run")
        words = ["train", "configs/cartpole_dqn.yaml", "--quiet", "--folder", str(folder)]
        words.append(f"session_config.stop={{seconds: {seconds + 15}}}")
        process = subprocess.Popen(
            [sys.executable, "-m", "main.cli", *words],
            cwd=tree.root,
            env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{tree.root}"},
        )
        names: dict[str, str] = {}
        while process.poll() is None:
            for beat in folder.glob("alive/*"):
                try:
                    names[str(json.loads(beat.read_text())["pid"])] = beat.name
                except (OSError, ValueError, KeyError):
                    continue
            time.sleep(1)
        known = {str(path): path for path in tree.files}
        found = {}
        for pid, name in names.items():
            if Path(out, pid).exists():
                own = [known[f] for f in Path(out, pid).read_text().splitlines() if f in known]
                found[name] = (len(own), sum(map(tree.lines, own)))
        return found


def main() -> None:
    """Prints the measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, nargs="?", default=Path(__file__).parents[1])
    parser.add_argument("--run", action="store_true", help="also train for 20 seconds")
    given = parser.parse_args()
    tree = Tree(given.checkout.resolve())
    dqn = tree.loaded_by("surreal_like.algorithm.dqn")
    core = core_files(tree)
    rows: dict[str, object] = {
        "Python files": len(tree.files),
        "lines": sum(map(tree.lines, tree.files)),
        "code lines": sum(map(code_lines, tree.files)),
        "Python files of the core": len(core),
        "lines of the core": sum(map(tree.lines, core)),
        "code lines of the core": sum(map(code_lines, core)),
        **{f"own files after import {name}": loaded(tree.root, name) for name in LOADED},
        "the same of surreal_like.algorithm.dqn, counted": len(dqn),
        "their lines": sum(tree.lines(tree.modules[name]) for name in dqn),
        "modules of the core that only add-ons use": ", ".join(used_by_add_ons_only(tree, core)),
        "circles of modules": len(circles(tree)),
        "folders of surreal_like in circles": sum(map(len, folder_circles(tree))),
        "modules with one importer": single_importers(tree),
        "conditions on the number of policies": policy_branches(tree),
        **{f"own files that run in {name}": number for name, number in way(tree.root).items()},
        "settings of plan --explain": settings(tree.root),
        "hooks": hooks(tree),
        "base keys": base_keys(tree.root),
        "base keys of the core": base_keys(tree.root, "core"),
    }
    if given.run:
        for name, (files, lines) in sorted(in_memory(tree, SECONDS).items()):
            rows[f"in memory of {name}"] = f"{files} files, {lines} lines"
    for name, value in rows.items():
        sys.stdout.write(f"{name:50} {value}\n")


if __name__ == "__main__":
    main()
