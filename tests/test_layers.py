"""Rules that hold for every file, read from syntax trees: who imports whom, what is never called.

A rule takes one parsed file and returns what is wrong with it. `BAD` holds, for each rule, code
that it must refuse, so that no rule passes because it sees nothing.
"""

import ast
import functools
import gc
import graphlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from session.addons import AddOn, add_ons, hooks, load
from session.addons.hooks import Hook
from tests import structure

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("session", "surreal_like", "main")
EVERYWHERE = (*PACKAGES, "benchmarks", "tests")
# The command line: `main/cli` or `main/cli.py`, and commands of add-ons.
COMMANDS = ("main/cli", "main/addons/")
MAX_FUNCTION_LINES = 60
MAX_ENTRY_LINES = 40

NOT_IN_SESSION = {"torch", "gymnasium", "surreal_like", "main"}
WITHOUT_TORCH = tuple(f"surreal_like/{name}/" for name in ("replay", "ps", "data"))
WITHOUT_TORCH += ("surreal_like/addons/hindsight/", "surreal_like/addons/episodes/")
TORCH_FREE_FILES = {"surreal_like/experiment/topology.py"}
# Folders of surreal_like, from the lowest: each imports only those before it.
FOLDERS = [
    "data",
    "transform",
    "exploration",
    "loss",
    "network",
    "ps",
    "env",
    "experience",
    "replay",
    "dataflow",
    "learner",
    "agent",
    "algorithm",
    "policies",
    "coordinator",
    "experiment",
    "run",
    "addons",
]
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"}
UNSAFE_NAMES = {"eval", "exec", "compile", "__import__"}
UNSAFE_METHODS = {"send_pyobj", "recv_pyobj", "unsafe_load", "full_load"}
UNSAFE_LOADERS = {"yaml.Loader", "yaml.FullLoader", "yaml.UnsafeLoader"}
VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}
# Docstrings begin with a verb or with the thing itself.
QUESTION_WORDS = ("What", "How", "Where", "Which", "Who", "Whose", "When", "Why", "Whether")
# Descriptions of arguments that need their name to be read.
FRAGMENTS = {"of", "its", "from", "for", "with", "in", "at", "to", "by", "on", "between", "before"}
FRAGMENTS |= {"after", "over", "under", "without"}
# Functions are named by verbs; these say what is counted, or are parts of pairs and of interfaces.
PARTICIPLES = {"checked", "linked", "mapped", "pushed", "added", "checkpointed", "computed"}
PARTICIPLES |= {"dropped", "ended", "explored", "joined", "limited", "named", "needed", "prepared"}
PARTICIPLES |= {"reached", "reported", "seeded", "shaped", "started", "superseded", "terminated"}
PARTICIPLES |= {"tuned", "unused"}
VERBS_IN_ED = {"embed", "shed", "reseed"}
# Words for people; parts of the program report, publish, receive, read.
PEOPLE_WORDS = {"who", "whoever", "nobody", "anybody", "somebody", "everybody", "everyone"}
PEOPLE_WORDS |= {"told", "hear", "hears", "heard"}
ANY_INTERFACE = ("0.0.0" + ".0", "tcp://" + "*", "tcp://" + "[::]")


@dataclass(eq=False)
class Source:
    """One file of Python: its path inside the repository, its text, and the nodes of its tree."""

    path: str
    text: str

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node; parsed once, by the first rule that looks."""
        return tuple(ast.walk(ast.parse(self.text, self.path)))

    @property
    def package(self) -> str:
        return self.path.split("/", maxsplit=1)[0]


Rule = Callable[[Source], Iterator[str]]


@functools.cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Return every Python file below these folders of the repository, each read once."""
    if len(folders) > 1:
        return tuple(source for folder in folders for source in sources(folder))
    paths = sorted((ROOT / folders[0]).rglob("*.py"))
    return tuple(Source(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths)


@pytest.fixture(autouse=True, scope="module")
def no_search_for_garbage() -> Iterator[None]:
    """Keep the collector from walking a million nodes of syntax trees again and again."""
    gc.disable()
    yield
    gc.enable()
    for source in sources(*EVERYWHERE):
        vars(source).pop("nodes", None)


# -- what a file imports and calls ----------------------------------------------------------------


def imported(source: Source) -> Iterator[tuple[int, str]]:
    """Yield line and full dotted name of each import, relative ones resolved."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = source.path.split("/")[: -node.level] if node.level else []
            module = [*above, node.module] if node.module else above
            yield from ((node.lineno, ".".join([*module, alias.name])) for alias in node.names)


def imports_of(source: Source, forbidden: set[str]) -> Iterator[str]:
    for line, name in imported(source):
        if name.split(".")[0] in forbidden:
            yield f"line {line} imports {name}"


def dotted_name(node: ast.expr) -> str:
    """Return `a.b.c` for a chain of attributes, the last names where it starts with a call."""
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def docstrings(source: Source) -> set[ast.expr]:
    """Return the nodes that are docstrings."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = set()
    for node in source.nodes:
        if isinstance(node, owners) and ast.get_docstring(node) is not None:
            first = node.body[0]
            assert isinstance(first, ast.Expr)
            found.add(first.value)
    return found


# -- the rules -----------------------------------------------------------------------------------


def session_stands_alone(source: Source) -> Iterator[str]:
    if source.package == "session":
        yield from imports_of(source, NOT_IN_SESSION)


def nothing_imports_main(source: Source) -> Iterator[str]:
    if not source.path.startswith(COMMANDS):  # the command line lies in several files
        yield from imports_of(source, {"main"})


def folder_of(name: str) -> str | None:
    """Return the folder inside surreal_like of a dotted module; None for any other module."""
    parts = name.split(".")
    return parts[1] if parts[0] == "surreal_like" and parts[1:2] and parts[1] in FOLDERS else None


def folders_import_only_lower_ones(source: Source) -> Iterator[str]:
    """Look at each import, also inside functions and for annotations."""
    own = folder_of(source.path.removesuffix(".py").replace("/", "."))
    for line, name in imported(source) if own is not None else ():
        other = folder_of(name)
        if other is None or own is None:
            continue
        if FOLDERS.index(other) > FOLDERS.index(own):
            yield f"line {line} imports {name}, which is above {own}"


def add_on_of(path: str) -> str:
    """Return the add-on of a dotted name or of a path without its ending; empty: the core."""
    parts = re.split(r"[./]", path)
    inside = parts[1:2] == ["addons"] and len(parts) > 3 and parts[2] != "hooks"
    return parts[2] if inside else ""


def add_ons_import_what_they_need(source: Source) -> Iterator[str]:
    """Look at imports, also for annotations; of the core only entry modules of add-ons have any."""
    own = add_on_of(source.path.removesuffix(".py"))
    for name, each in add_ons().items():
        own = name if source.path in each.files else own
    allowed = {own, "", *add_ons().get(own, AddOn()).needs}
    for line, name in imported(source):
        if add_on_of(name) not in allowed:
            yield f"line {line} imports {name}, which {own or 'the core'} does not need"


def servers_do_without_torch(source: Source) -> Iterator[str]:
    if source.path.startswith(WITHOUT_TORCH) or source.path in TORCH_FREE_FILES:
        yield from imports_of(source, {"torch"})


def no_code_from_data(source: Source) -> Iterator[str]:
    yield from imports_of(source, UNSAFE_MODULES)
    for node in source.nodes:
        if isinstance(node, ast.Name) and node.id in UNSAFE_NAMES:
            yield f"line {node.lineno} uses {node.id}"
        if isinstance(node, ast.Attribute) and node.attr in UNSAFE_METHODS:
            yield f"line {node.lineno} uses {node.attr}"
        if isinstance(node, ast.Call):
            yield from unsafe_arguments(node)


def unsafe_arguments(call: ast.Call) -> Iterator[str]:
    given = {word.arg: ast.unparse(word.value) for word in call.keywords}
    name = dotted_name(call.func)
    if name == "torch.load" and given.get("weights_only") != "True":
        yield f"line {call.lineno} calls torch.load without weights_only=True"
    if name == "yaml.load" and given.get("Loader", "yaml.Loader") in UNSAFE_LOADERS:
        yield f"line {call.lineno} calls yaml.load without a loader of plain values"
    if given.get("allow_pickle", "False") != "False":
        yield f"line {call.lineno} allows pickle"


def files_are_read_with_a_check_of_types(source: Source) -> Iterator[str]:
    """A file may hold anything: `session.json_file` decodes it and checks what is used."""
    for function in source.nodes:
        if not isinstance(function, ast.FunctionDef):
            continue
        names = [node for node in ast.walk(function) if isinstance(node, ast.Attribute)]
        reads = any(node.attr in {"read_text", "read_bytes", "open"} for node in names)
        for node in names:
            name = dotted_name(node)
            if name == "json.load" or (name == "json.loads" and reads):
                yield f"line {node.lineno} reads a file by {name}"


def commands_ask_for_names_of_any_length(source: Source) -> Iterator[str]:
    """`Path.is_file` raises an error for a name that is too long, os.path.isfile answers no."""
    for node in source.nodes:
        if not isinstance(node, ast.Attribute) or dotted_name(node) == "os.path.exists":
            continue
        if node.attr in {"is_file", "is_dir", "exists"}:
            yield f"line {node.lineno} uses Path.{node.attr}, which os.path has, too"


def names_say_what_is_inside(source: Source) -> Iterator[str]:
    for part in Path(source.path).with_suffix("").parts:
        if part.strip("_") in VAGUE_NAMES:
            yield f"is called {part}"


def binds_no_outer_interface(source: Source) -> Iterator[str]:
    skipped = docstrings(source)
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            for address in ANY_INTERFACE:
                if address in node.value:
                    yield f"line {node.lineno} names {address}"


def functions_are_short(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                length -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"line {node.lineno} {node.name} has {length} lines"


def entries_are_short(source: Source) -> Iterator[str]:
    name = Path(source.path).name
    if source.package == "main" and not source.path.startswith(COMMANDS) and name[0] != "_":
        length = len(source.text.splitlines())
        if length > MAX_ENTRY_LINES:
            yield f"has {length} lines, an entry module at most {MAX_ENTRY_LINES}"


def docstrings_begin_with_the_thing(source: Source) -> Iterator[str]:
    for node in docstrings(source):
        text = ast.literal_eval(node)
        if text.split(maxsplit=1)[:1] and text.split(maxsplit=1)[0].rstrip(",:") in QUESTION_WORDS:
            yield f"line {node.lineno} begins with a question word: {text.splitlines()[0]}"


def descriptions_of_arguments_stand_alone(source: Source) -> Iterator[str]:
    for node in docstrings(source):
        inside = -1
        for number, line in enumerate(source.text.splitlines()[node.lineno - 1 : node.end_lineno]):
            indent = len(line) - len(line.lstrip())
            if line.strip() in ("Args:", "Attributes:"):
                inside = indent
            elif line.strip() and indent <= inside:
                inside = -1
            elif inside >= 0 and indent == inside + 4 and ": " in line:
                first = line.split(": ", 1)[1].split(maxsplit=1)[0].rstrip(",;:")
                if first in FRAGMENTS:
                    yield f"line {node.lineno + number} describes an argument by a fragment: {line}"


def functions_are_named_by_verbs(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef) and not any(
            "property" in ast.unparse(each) for each in node.decorator_list
        ):
            word = node.name.strip("_")
            if re.fullmatch(r"[a-z]+[^e]ed", word) and word not in PARTICIPLES | VERBS_IN_ED:
                yield f"line {node.lineno} names a function by a participle: {node.name}"


def names_are_not_those_of_people(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name):
            name = node.id
        elif isinstance(node, ast.Attribute):
            name = node.attr
        else:
            continue
        if PEOPLE_WORDS.intersection(name.lower().split("_")):
            yield f"line {node.lineno} names {name}"


def networks_leave_the_batch_free(source: Source) -> Iterator[str]:
    """Refuse `len` of a batch: a plain number, which an exported graph would keep for ever.

    `len` of an attribute is no batch. In files with networks, functions of tensors are looked at,
    too.
    """
    bodies = [node.body for node in source.nodes if isinstance(node, ast.ClassDef)]
    methods = [[each for each in body if isinstance(each, ast.FunctionDef)] for body in bodies]
    networks = [own for own in methods if "forward" in {each.name for each in own}]
    if not networks:
        return
    inside = {each for own in networks for each in own if each.name != "__init__"}
    inside |= {node for node in source.nodes if isinstance(node, ast.FunctionDef) and tensors(node)}
    calls = {node for each in inside for node in ast.walk(each) if isinstance(node, ast.Call)}
    for call in calls:
        if dotted_name(call.func) == "len" and not dotted_name(call.args[0]).startswith("self."):
            yield f"line {call.lineno} has len() of a batch: use shape[0]"


def tensors(function: ast.FunctionDef) -> bool:
    """Return True if an argument is a tensor."""
    given = (each.annotation for each in function.args.args)
    return any(each is not None and dotted_name(each) == "torch.Tensor" for each in given)


RULES: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (session_stands_alone, PACKAGES),
    (nothing_imports_main, PACKAGES),
    (folders_import_only_lower_ones, ("surreal_like",)),
    (add_ons_import_what_they_need, PACKAGES),
    (servers_do_without_torch, PACKAGES),
    (no_code_from_data, (*PACKAGES, "benchmarks")),
    (files_are_read_with_a_check_of_types, PACKAGES),
    (commands_ask_for_names_of_any_length, ("main",)),
    (names_say_what_is_inside, EVERYWHERE),
    (binds_no_outer_interface, PACKAGES),
    (functions_are_short, EVERYWHERE),
    (entries_are_short, PACKAGES),
    (docstrings_begin_with_the_thing, (*PACKAGES, "benchmarks")),
    (descriptions_of_arguments_stand_alone, PACKAGES),
    (functions_are_named_by_verbs, PACKAGES),
    (names_are_not_those_of_people, EVERYWHERE),
    (networks_leave_the_batch_free, ("surreal_like",)),
)

LONG = "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES
LONG_BY_DOCSTRING = 'def f():\n    """Short.\n' + "\n" * 70 + '    """\n' + "    x = 1\n" * 58
ARGUMENT = 'def f(seed):\n    """Draws.\n\n    Args:\n        seed: {}.\n    """'
NETWORK = "class Net:\n    def forward(self, x): return"
OF_TENSOR = "def f(x: torch.Tensor): return len(x)"

BAD: tuple[tuple[Rule, str, str], ...] = (
    (session_stands_alone, "session/a.py", "import torch.nn"),
    (session_stands_alone, "session/a.py", "def f():\n    from gymnasium import spaces"),
    (session_stands_alone, "session/wire/a.py", "from surreal_like.data import spec"),
    (session_stands_alone, "session/wire/a.py", "from ... import main"),
    (nothing_imports_main, "surreal_like/a.py", "import main"),
    (nothing_imports_main, "surreal_like/a.py", "from main import cli"),
    (nothing_imports_main, "main/replay.py", "from . import ps"),
    (folders_import_only_lower_ones, "surreal_like/data/a.py", "from surreal_like.env import b"),
    (folders_import_only_lower_ones, "surreal_like/ps/a.py", "from surreal_like import replay"),
    (
        folders_import_only_lower_ones,
        "surreal_like/replay/a.py",
        "def f():\n    from surreal_like.learner.learner import Learner",
    ),
    (
        folders_import_only_lower_ones,
        "surreal_like/run/a.py",
        "from surreal_like.addons.join.tokens import b",
    ),
    (
        add_ons_import_what_they_need,
        "main/cli/a.py",
        "def f():\n    from session.addons.tmux import run",
    ),
    (
        add_ons_import_what_they_need,
        "surreal_like/addons/tuning/a.py",
        "from surreal_like.addons.join.agents import RunWatch",
    ),
    (
        add_ons_import_what_they_need,
        "main/mirror.py",
        "import session.addons.slurm.jobs",
    ),
    (servers_do_without_torch, "surreal_like/replay/a.py", "import torch"),
    (servers_do_without_torch, "surreal_like/experiment/topology.py", "from torch import nn"),
    (no_code_from_data, "session/a.py", "import pickle"),
    (no_code_from_data, "session/a.py", "from multiprocessing import shared_memory; eval('1')"),
    (no_code_from_data, "session/a.py", "run = exec"),
    (no_code_from_data, "session/a.py", "socket.recv_pyobj()"),
    (no_code_from_data, "session/a.py", "torch.load(path)"),
    (no_code_from_data, "session/a.py", "torch.load(path, weights_only=False)"),
    (no_code_from_data, "session/a.py", "yaml.load(text)"),
    (no_code_from_data, "session/a.py", "yaml.load(text, Loader=yaml.FullLoader)"),
    (no_code_from_data, "session/a.py", "np.load(path, allow_pickle=True)"),
    (
        files_are_read_with_a_check_of_types,
        "session/a.py",
        "def f(path):\n    return json.loads(path.read_text())",
    ),
    (
        files_are_read_with_a_check_of_types,
        "main/a.py",
        "def f(path):\n    lines = path.read_bytes().split()\n    return map(json.loads, lines)",
    ),
    (
        files_are_read_with_a_check_of_types,
        "main/a.py",
        "def f(path):\n    with path.open() as file:\n        return json.load(file)",
    ),
    (commands_ask_for_names_of_any_length, "main/a.py", "Path(word).is_file()"),
    (commands_ask_for_names_of_any_length, "main/a.py", "found = filter(Path.exists, paths)"),
    (names_say_what_is_inside, "surreal_like/utils.py", ""),
    (names_say_what_is_inside, "surreal_like/_common/a.py", ""),
    (binds_no_outer_interface, "session/a.py", f"socket.bind('{ANY_INTERFACE[0]}')"),
    (binds_no_outer_interface, "session/a.py", f"socket.bind(f'{ANY_INTERFACE[1]}:{{port}}')"),
    (functions_are_short, "session/a.py", LONG),
    (entries_are_short, "main/replay.py", "x = 1\n" * 41),
    (docstrings_begin_with_the_thing, "session/a.py", '"""What a process reports."""'),
    (
        docstrings_begin_with_the_thing,
        "session/a.py",
        'def f():\n    """\n    Whether it lives."""',
    ),
    (descriptions_of_arguments_stand_alone, "session/a.py", ARGUMENT.format("of all draws")),
    (functions_are_named_by_verbs, "session/a.py", "def _wrapped(): pass"),
    (names_are_not_those_of_people, "session/a.py", "def _hear(self): pass"),
    (names_are_not_those_of_people, "session/a.py", "class Nobody: pass"),
    (names_are_not_those_of_people, "session/a.py", "def f(who): pass"),
    (names_are_not_those_of_people, "session/a.py", "self.told_at = 0"),
    (networks_leave_the_batch_free, "surreal_like/a.py", f"{NETWORK} x.view(len(x), -1)"),
    (networks_leave_the_batch_free, "surreal_like/a.py", f"{NETWORK} draw((len(leaves(x)[0]),))"),
    (networks_leave_the_batch_free, "surreal_like/a.py", f"{NETWORK} x\n{OF_TENSOR}"),
)

GOOD: tuple[tuple[Rule, str, str], ...] = (
    (session_stands_alone, "surreal_like/a.py", "import torch, gymnasium, session"),
    (session_stands_alone, "session/wire/a.py", "from . import main_loop; from .. import nest"),
    (nothing_imports_main, "main/cli.py", "import main"),
    (nothing_imports_main, "main/addons/tuning/a.py", "import main"),
    (
        add_ons_import_what_they_need,
        "surreal_like/addons/gateway/a.py",
        "from session.addons.gateway.tls import b\nfrom session.addons import AddOn, hooks",
    ),
    (servers_do_without_torch, "surreal_like/agent/a.py", "import torch"),
    (no_code_from_data, "session/a.py", "torch.load(path, weights_only=True); net.eval()"),
    (no_code_from_data, "session/a.py", "np.load(path, allow_pickle=False); re.compile('')"),
    (no_code_from_data, "session/a.py", "yaml.load(text, Loader=PlainLoader)"),
    (
        files_are_read_with_a_check_of_types,
        "session/a.py",
        "def f(line):\n    return json.loads(line)\ndef g(path):\n    return path.read_text()",
    ),
    (commands_ask_for_names_of_any_length, "main/a.py", "os.path.isfile(a) or os.path.exists(a)"),
    (binds_no_outer_interface, "session/a.py", f'"""Never {ANY_INTERFACE[0]}."""'),
    (functions_are_short, "session/a.py", LONG_BY_DOCSTRING),
    (entries_are_short, "main/cli.py", "x = 1\n" * 41),
    (entries_are_short, "main/addons/join/join.py", "x = 1\n" * 41),
    (docstrings_begin_with_the_thing, "session/a.py", '"""Whatever is due. What else?"""'),
    (descriptions_of_arguments_stand_alone, "session/a.py", ARGUMENT.format("seed of all draws")),
    (
        functions_are_named_by_verbs,
        "session/a.py",
        "@property\ndef wrapped(): pass\ndef feed(): pass",
    ),
    (names_are_not_those_of_people, "session/a.py", "whole = threshold = wholesale = 1"),
    (networks_leave_the_batch_free, "surreal_like/a.py", f"{NETWORK} range(len(self.layers))"),
    (networks_leave_the_batch_free, "surreal_like/a.py", OF_TENSOR),
)


@pytest.mark.parametrize(("rule", "path", "text"), BAD)
def test_rule_refuses(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))


@pytest.mark.parametrize(("rule", "path", "text"), GOOD)
def test_rule_accepts(rule: Rule, path: str, text: str) -> None:
    assert not list(rule(Source(path, text)))


@pytest.mark.parametrize(("rule", "folders"), RULES, ids=[rule.__name__ for rule, _ in RULES])
def test_rule_holds(rule: Rule, folders: tuple[str, ...]) -> None:
    files = sources(*folders)
    assert files
    wrong = [f"{source.path} {problem}" for source in files for problem in rule(source)]
    assert not wrong, "\n".join(wrong)


# -- circles ---------------------------------------------------------------------------------------


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def circle(files: Sequence[Source]) -> list[str]:
    """Return the modules of a circle of imports, the first one also last; empty without one.

    Imports for annotations count: two rooms that need each other's names are one room.
    """
    known = {module_of(source.path) for source in files}
    graph: dict[str, set[str]] = {}
    for source in files:
        names = [(name, name.rpartition(".")[0]) for _, name in imported(source)]
        found = {next((each for each in pair if each in known), "") for pair in names}
        graph[module_of(source.path)] = found - {"", module_of(source.path)}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    assert circle(sources(*PACKAGES)) == []


def test_a_circle_of_imports_is_seen() -> None:
    one = Source("a/one.py", "def f():\n    from a.two import g\n")
    two = Source("a/two.py", "import a.one\n")
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a.one\n"
    assert set(circle([one, two])) == {"a.one", "a.two"}
    assert set(circle([one, Source("a/two.py", typed)])) == {"a.one", "a.two"}
    assert circle([one, Source("a/two.py", "import b")]) == []


# -- the end of a process --------------------------------------------------------------------------

# Libraries whose exit handlers close what our sockets need; ours has to come before them.
ENDS_OF_A_PROCESS = {"zmq.Context", "zmq.Context.instance", "atexit.register"}


def calls(source: Source) -> set[str]:
    """Return the dotted names of all functions that a file calls."""
    return {dotted_name(node.func) for node in source.nodes if isinstance(node, ast.Call)}


def test_one_module_makes_all_contexts_and_is_the_one_to_close_them_at_exit() -> None:
    found = {source.path: calls(source) & ENDS_OF_A_PROCESS for source in sources(*PACKAGES)}
    assert [each for each in found.values() if each] == [{"zmq.Context", "atexit.register"}], found


def test_every_folder_has_its_place_in_the_order() -> None:
    found = {path.parent.name for path in (ROOT / "surreal_like").glob("*/__init__.py")}
    assert found == set(FOLDERS)


# -- add-ons ---------------------------------------------------------------------------------------


def test_each_add_on_has_a_folder_and_needs_what_it_imports() -> None:
    folders = {path.name for each in PACKAGES for path in (ROOT / each / "addons").glob("*/")}
    assert folders - {"__pycache__"} == set(add_ons())
    files = sources(*PACKAGES)
    for name, each in add_ons().items():
        own = [source for source in files if add_on_of(source.path.removesuffix(".py")) == name]
        used = {add_on_of(module) for source in own for _, module in imported(source)}
        assert used - {"", name} == {*each.needs}, name
        assert all((ROOT / file).exists() for file in each.files), name


@pytest.mark.parametrize("name", add_ons())
def test_what_an_add_on_declares_is_there(name: str) -> None:
    texts = re.findall(r"'((?:session|surreal_like|main)\.[\w.]+(?::\w+)?)'", repr(add_ons()[name]))
    for text in texts:
        module, _, variable = text.partition(":")
        assert {variable} - {""} <= definitions(module), text


def definitions(module: str) -> set[str]:
    """Return the names that a module defines, read from its text: it may need lacking packages."""
    (source,) = (each for each in sources(*PACKAGES) if module_of(each.path) == module)
    found = set()
    for node in ast.parse(source.text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {ast.unparse(target) for target in node.targets}
    return found


@pytest.mark.parametrize("name", add_ons())
def test_functions_of_add_ons_take_what_hooks_give(name: str) -> None:
    known = {hook.name: protocol for _, hook, protocol in table_of_hooks()}
    for hook, home in add_ons()[name].hooks.items():
        taken = inspect.signature(load(home))
        _, *given = inspect.signature(known[hook].__call__).parameters.values()
        positional = [each.name for each in given if each.kind is each.POSITIONAL_ONLY]
        taken.bind(*positional, **{x.name: x for x in given if x.kind is x.KEYWORD_ONLY})


def table_of_hooks() -> list[tuple[str, Hook[Any], type]]:
    """Return variable, hook and its type, in the order of their file."""
    hints = get_type_hints(hooks).items()
    return [(name, getattr(hooks, name), get_args(hint)[0]) for name, hint in hints]


def test_few_conditions_tell_one_policy_from_several() -> None:
    assert 0 < structure.policy_branches(structure.Tree(ROOT)) <= 4
