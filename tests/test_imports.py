"""What a fresh interpreter has imported: every millisecond of it is one that a run starts later."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from surreal_like.algorithm.catalog import list_algorithms
from tests.add_ons import needs
from tests.test_layers import (
    PACKAGES,
    ROOT,
    TORCH_FREE_FILES,
    WITHOUT_TORCH,
    module_of,
    sources,
)

TORCH = {"torch", "gymnasium"}
HEAVY = {*TORCH, "tensorboard", "fsspec", "asyncio", "rich", "multiprocessing"}
COMMAND = HEAVY | {"numpy", "zmq", "psutil"}
# Modules that import the package of an extra.
EXTRAS = {"session.addons.sinks.ml_flow": "mlflow"}


def modules_in(*places: str) -> str:
    """Return an import of the modules below these folders, or of these files, that can be had."""
    files = [source.path for source in sources(*PACKAGES) if source.path.startswith(places)]
    lacking = {module for module, package in EXTRAS.items() if find_spec(package) is None}
    return "import " + ", ".join(sorted({*map(module_of, files)} - lacking))


def found(code: str, unwanted: set[str]) -> set[str]:
    """Return the unwanted modules that a fresh interpreter has after some code."""
    return set(run_fresh(f"{code}\nimport sys; print(*({unwanted!r} & set(sys.modules)))").split())


def run_fresh(code: str) -> str:
    """Return the output of a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        # The command, until it has started the process that imports torch.
        ("import main.cli.train", COMMAND),
        ("import main.cli", COMMAND),
        ("import main.replay, main.ps, main.loggerplex", HEAVY),
        # It writes TensorBoard's files.
        ("import main.tensorplex", TORCH | {"rich"}),
        ("import session", {"zmq", "torch", "numpy"}),
        # Of the packages above it only the declarations of add-ons.
        (modules_in("session/"), TORCH | {"surreal_like.data", "surreal_like.learner", "main.cli"}),
        # Widgets and pictures of a notebook.
        pytest.param(
            "import session.addons.analysis.dashboard",
            {"ipywidgets", "IPython", "matplotlib"},
            marks=needs("analysis"),
        ),
        (modules_in(*WITHOUT_TORCH, *TORCH_FREE_FILES), {"torch"}),
        ("import surreal_like.data.spec, surreal_like.data.timestep", TORCH),
        ("import surreal_like.env as env; env.make_env({'env_name': 'toy:grid'})", TORCH),
        pytest.param(
            "import surreal_like.addons.analysis.statistics", {"torch"}, marks=needs("analysis")
        ),
        ("import surreal_like.algorithm.catalog as a; a.describe_algorithms()", {"torch"}),
    ],
    ids=lambda value: value[7:60] if isinstance(value, str) else "",
)
def test_imports_are_light(code: str, unwanted: set[str]) -> None:
    assert found(code, unwanted) == set()


OWN = "sum(name.partition('.')[0] in ('session', 'surreal_like', 'main') for name in sys.modules)"


def loaded(code: str) -> tuple[int, set[str]]:
    """Return the number of own modules that a fresh interpreter has after some code, and all."""
    number, *names = run_fresh(f"{code}\nimport sys; print({OWN}, *sys.modules)").split()
    return int(number), set(names)


ALGORITHMS = sorted({home.partition(":")[0] for home in list_algorithms().values()})
# Each is imported in a fork of an interpreter that has nothing but torch.
FORKED = """
import os, torch
for module in {modules}:
    if not (child := os.fork()):
        __import__(module)
        print({own}, *sys.modules, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, module
"""


@pytest.fixture(scope="module")
def loaded_by() -> dict[str, tuple[int, set[str]]]:
    """Return for each algorithm the number of own modules that it loads, and all."""
    code = "import sys" + FORKED.format(modules=ALGORITHMS, own=OWN)
    found = {}
    for module, line in zip(ALGORITHMS, run_fresh(code).splitlines(), strict=True):
        number, *names = line.split()
        found[module] = int(number), set(names)
    return found


@pytest.mark.parametrize("module", ALGORITHMS)
def test_an_algorithm_loads_no_transport_and_no_add_on_of_others(
    loaded_by: dict[str, tuple[int, set[str]]], module: str
) -> None:
    number, names = loaded_by[module]
    assert module in names
    room = module.rpartition(".")[0]
    unwanted = {name for name in names if name.startswith("main") or name.endswith(".addon")}
    unwanted |= {name for name in names if name.startswith(("zmq", "session.wire"))}
    # Its own room may declare more of it.
    assert not {name for name in unwanted if name != f"{room}.addon"}
    assert number <= 90


@pytest.mark.parametrize(
    ("module", "most"),
    [
        ("session", 4),
        ("main.cli", 30),
        ("main.ps", 70),
        ("main.loggerplex", 66),
        ("main.tensorplex", 80),
        ("main.supervisor", 80),
        ("main.replay", 100),
    ],
)
def test_processes_load_few_modules(module: str, most: int) -> None:
    number, names = loaded(f"import {module}")
    assert number <= most
    # Declarations of add-ons are read with the first config.
    assert not {name for name in names if name.endswith(".addon")}


def test_imports_of_a_fresh_interpreter_are_seen() -> None:
    assert found("import json.tool", {"json", "torch"}) == {"json"}
