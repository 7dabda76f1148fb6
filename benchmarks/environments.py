"""Environments of the peers: each installed with pip into a folder of its own, once."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

INSTALL_SECONDS = 1200.0
# torch is named by its version alone: pip then takes the build that this machine is set up for.
TORCH = "torch==2.13.0"
PACKAGES: dict[str, tuple[str, ...]] = {
    # With the TensorFlow that its metadata name: it does not load with 2.21.
    "reverb": ("dm-reverb[tensorflow]==0.14.0", "tensorflow==2.15.1"),
    "id-echo": ("id-echo==0.2.1",),
    "cpprb": ("cpprb==11.0.0",),
    "torchrl": (TORCH, "torchrl==0.14.1", "gymnasium==1.2.3"),
    "sb3": (
        *(TORCH, "stable-baselines3==2.9.2"),
        *("gymnasium[mujoco]==1.2.3", "mujoco==3.10.0", "minatar==1.0.15"),
    ),
    # Its release asks for a Gymnasium before 1.0, the emulator works with that, too.
    "sample_factory": (TORCH, "sample-factory==2.1.1", "ale-py==0.12.1"),
    "rllib": (TORCH, "ray[rllib]==2.60.0", "ale-py==0.12.1"),
}
_VERSIONS = """
import importlib.metadata as m, json, sys
names = ("dm-reverb", "tensorflow", "id-echo", "cpprb", "torchrl", "tensordict",
         "stable-baselines3", "torch", "sample-factory", "ray")
found = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in m.distributions()}
print(json.dumps({n: found[n] for n in names if n in found}))
"""


def install(peer: str, scratch: Path) -> str:
    """The interpreter of a peer's environment below ``scratch``; made there if it is missing.

    Raises:
        RuntimeError: it cannot be installed; says why.
    """
    folder = scratch / peer
    python, done = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join(PACKAGES[peer])
    if done.exists() and done.read_text() == wanted:
        return str(python)
    print(f"installing {', '.join(PACKAGES[peer])} into {folder}", file=sys.stderr, flush=True)
    venv.create(folder, with_pip=True, clear=True)
    pip_install(str(python), PACKAGES[peer])
    done.write_text(wanted)
    return str(python)


def pip_install(python: str, packages: Iterable[str]) -> None:
    """Installs packages into the environment of an interpreter.

    Raises:
        RuntimeError: they cannot be installed; says why.
    """
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
    )
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or ["pip left no word"]
        raise RuntimeError(lines[-1])


def versions(python: str) -> dict[str, str]:
    """Versions of the packages that matter in an environment."""
    import json

    versions: dict[str, str] = json.loads(
        subprocess.check_output([python, "-c", _VERSIONS], text=True)
    )
    return versions
