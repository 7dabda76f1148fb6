"""What a fresh interpreter has imported: every millisecond of it is one that a run starts later."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

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
EXTRAS = {"session.tensorplex.sinks.ml_flow": "mlflow"}


def modules_in(*places: str) -> str:
    """Return an import of the modules below these folders, or of these files, that can be had."""
    files = [source.path for source in sources(*PACKAGES) if source.path.startswith(places)]
    lacking = {module for module, package in EXTRAS.items() if find_spec(package) is None}
    return "import " + ", ".join(sorted({*map(module_of, files)} - lacking))


def found(code: str, unwanted: set[str]) -> set[str]:
    """Return the unwanted modules that a fresh interpreter has after some code."""
    code = f"{code}\nimport sys; print(*({unwanted!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


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
            "import session.show.dashboard",
            {"ipywidgets", "IPython", "matplotlib"},
            marks=needs("analysis"),
        ),
        (modules_in(*WITHOUT_TORCH, *TORCH_FREE_FILES), {"torch"}),
        ("import surreal_like.data.spec, surreal_like.data.timestep", TORCH),
        ("import surreal_like.env as env; env.make_env({'env_name': 'toy:grid'})", TORCH),
        ("import surreal_like.statistics", {"torch"}),
        ("import surreal_like.algorithm.catalog as a; a.describe_algorithms()", {"torch"}),
    ],
    ids=lambda value: value[7:60] if isinstance(value, str) else "",
)
def test_imports_are_light(code: str, unwanted: set[str]) -> None:
    assert found(code, unwanted) == set()


def test_imports_of_a_fresh_interpreter_are_seen() -> None:
    assert found("import json.tool", {"json", "torch"}) == {"json"}
