"""Finds the update at which another checkout of the code learns something else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from session.errors import UsageError
from session.folder import RunFolder
from session.json_file import TEXT, MapOf, read_object
from surreal_like.addons.recording.flight import hash_of, tensors_of
from surreal_like.addons.recording.rerun import Repeater

_HASHES, _TENSORS = "hashes.json", "tensors.npz"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between two reruns.

    Args:
        update: number of the update.
        tensor: name of the first tensor that differs after it.
        largest: largest absolute difference of its entries.
    """

    update: int
    tensor: str
    largest: float


def trace(
    run: RunFolder, folder: Path, *, policy: str | None, after: int, until: int | None
) -> None:
    """Repeats updates; writes a hash after each one, and the tensors after the last one.

    Args:
        run: the run folder.
        folder: gets both files.
        policy: name of the policy.
        after: hashes are written of later updates only.
        until: the last update; None: that of the journal.
    """
    repeater = Repeater(run, policy)
    learner, hashes = repeater.learner, dict[int, str]()

    def note() -> None:
        if learner.iteration > after:
            hashes[learner.iteration] = hash_of(learner)

    repeater.on_update = note
    repeater.run(None, until)
    (folder / _HASHES).write_text(json.dumps(hashes), encoding="utf-8")
    tensors: dict[str, Any] = dict(tensors_of(learner))
    np.savez(folder / _TENSORS, **tensors)


def compare_code(run: RunFolder, code: Path, policy: str | None = None) -> Difference | None:
    """Returns the first update at which another checkout learns something else; None: none does.

    Args:
        run: the run folder.
        code: folder of the checkout.
        policy: name of the policy.

    Raises:
        UsageError: the other checkout cannot repeat the run.
    """
    found = json.loads(_run(code, run, policy, "--json"))
    if found["differs"] is None:
        return None
    after, until = found["differs"]
    with tempfile.TemporaryDirectory(prefix="sl-rerun-") as scratch:
        hashes = _trace_both(run, code, policy, Path(scratch), after, until)
        here, there = hashes
        first = next((at for at in sorted(here, key=int) if here[at] != there.get(at)), str(until))
        _trace_both(run, code, policy, Path(scratch), int(first), int(first))
        ours, theirs = (np.load(Path(scratch, each, _TENSORS)) for each in ("here", "there"))
        for name in ours.files:
            if name not in theirs or (ours[name] != theirs[name]).any():
                other = theirs[name] if name in theirs else np.full_like(ours[name], np.nan)
                return Difference(int(first), name, float(np.abs(ours[name] - other).max()))
    return Difference(int(first), "", 0.0)


def _trace_both(
    run: RunFolder, code: Path, policy: str | None, scratch: Path, after: int, until: int
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    here, there = scratch / "here", scratch / "there"
    for folder in (here, there):
        folder.mkdir(exist_ok=True)
    numbers = ("--until", str(until), "--trace", str(there), str(after))
    trace(run, here, policy=policy, after=after, until=until)
    _run(code, run, policy, *numbers)
    return read_object(here / _HASHES, MapOf(TEXT)), read_object(there / _HASHES, MapOf(TEXT))


def _run(code: Path, run: RunFolder, policy: str | None, *more: str) -> str:
    """Runs `rerun` of a checkout; returns what it prints."""
    if not (code / "surreal_like").is_dir():
        raise UsageError(f"{code} is no checkout: it has no folder surreal_like")
    named = ("--policy", policy) if policy else ()
    words = [sys.executable, "-P", "-m", "main.cli", "rerun", str(run.path.absolute()), *named]
    done = subprocess.run(
        [*words, *more],
        cwd=code,
        env={**os.environ, "PYTHONPATH": str(code.absolute())},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise UsageError(f"the code in {code} cannot repeat {run}: {done.stderr.strip()}")
    return done.stdout
