"""What starts first imports little: every millisecond of it is one that a run starts later."""

import json
import subprocess
import sys

import pytest

TORCH = {"torch", "gymnasium"}
HEAVY = {*TORCH, "tensorboard", "fsspec", "asyncio", "rich", "multiprocessing"}


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        # The command, until it has started the process that imports torch.
        ("main.cli.train", HEAVY | {"numpy", "zmq", "psutil"}),
        ("main.cli", HEAVY | {"numpy", "zmq", "psutil"}),
        ("main.replay, main.ps, main.loggerplex", HEAVY),
        # It writes TensorBoard's files.
        ("main.tensorplex", TORCH | {"rich"}),
    ],
)
def test_imports_are_light(modules: str, unwanted: set[str]) -> None:
    code = f"import json, sys, {modules}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert unwanted & set(json.loads(done.stdout)) == set()
