"""Finds checkpoints of a run by name: ``best``, ``latest``, or a number."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from session.checkpoint import STATE, earlier_ones, read_sealed, read_state
from session.config import Config
from session.errors import CheckpointError, UsageError
from session.folder import RUNS, RunFolder
from session.newest_checkpoint import Checkpoints, Note
from surreal_like.data.policy_names import DEFAULT_POLICY, PolicyId, learning_policies
from surreal_like.experiment.trained import trained_folder

_log = logging.getLogger(__name__)

_NAMED = re.compile(r"(.+):(best(?:-\d+)?|latest|\d+)")


def whole_checkpoint(run: RunFolder, checkpoint: str | int, policy: str = DEFAULT_POLICY) -> Path:
    """Returns the folder of a checkpoint of a run, after verification of every file.

    Args:
        run: the folder.
        checkpoint: ``best``, ``best-2`` and so on, ``latest`` (the newest complete one), or the
            iteration of a checkpoint.
        policy: name of the policy.

    Raises:
        UsageError: the checkpoint does not exist; the message lists the existing ones.
        CheckpointError: the checkpoint is incomplete; the message names the file.
    """
    paths, place = _by_name(run, policy), run.copy_of or run
    if str(checkpoint) not in paths:
        raise UsageError(
            f"run {place} has no checkpoint '{checkpoint}'; it has {', '.join(paths) or 'none yet'}"
        )
    return _first_whole(paths[str(checkpoint)], f"run {place} has {', '.join(paths)}")


def name_of(path: Path, policy: str) -> str:
    """Returns the name of the checkpoint of a policy in a folder, such as ``best`` or ``12000``."""
    # The best parameters of one of several policies stand in a folder of its name.
    return path.name if path.name.isdigit() else path.name.replace(policy, "best", 1)


def checkpoints_named(
    run: RunFolder, checkpoint: str | int, policy: str = DEFAULT_POLICY
) -> list[Path]:
    """Returns the candidates for a name as in :func:`whole_checkpoint`, newest first, unverified.

    Empty if there is none.
    """
    return _by_name(run, policy).get(str(checkpoint), [])


def only_policy(config: Config, place: object, what: str) -> str:
    """Returns the name of the only policy that learns.

    Args:
        config: config of the run.
        place: the run, for the message.
        what: command or setting that cannot choose among several policies, for the message.

    Raises:
        UsageError: there are several.
    """
    names = learning_policies(config)
    if len(names) > 1:
        raise UsageError(
            f"{place} has several policies that learn ({', '.join(names)}): {what} is for runs in "
            "which one learns"
        )
    return names[0]


def _by_name(run: RunFolder, policy: str = DEFAULT_POLICY) -> dict[str, list[Path]]:
    own = PolicyId(policy)
    numbered = list(Checkpoints(run.checkpoints / own.checkpoints).newest_first())
    best = earlier_ones(run.checkpoints / own.best)
    paths = {path.name: [path] for path in reversed(numbered)}
    if numbered:
        paths["latest"] = numbered
    number_of = {path: path.name.removeprefix(Path(own.best).name) for path in best}
    paths |= {f"best{number}": [path] for path, number in number_of.items()}
    if best:
        # `best` is missing for a moment while a new one is moved into place.
        paths.setdefault("best", best[:1])
    return paths


def _first_whole(paths: list[Path], there: str) -> Path:
    first: CheckpointError | None = None
    for path in paths:
        try:
            read_state(path)
        except CheckpointError as error:
            first = first or error
        else:
            if first is not None:
                _log.warning("%s; the older checkpoint %s is used instead", first, path)
            return path
    raise CheckpointError(f"{first}; {there}")


def default_checkpoint(run: RunFolder) -> str:
    """Returns ``best``, or ``latest`` where that is not the policy that was learned.

    So it is if nothing was evaluated, or only the policy of the start, as in short runs.
    """
    best = run.checkpoints / "best"
    newest = run.last_progress().get("eval") or (run.read_result() or {}).get("eval")
    learned = _is_learned(best) if newest is None else (newest.get("iteration") or 0) > 0
    if learned and best.exists():
        return "best"
    # Each policy has a folder of its own.
    return "latest" if any(run.checkpoints.glob("*/[0-9]*")) else "best"


def _is_learned(best: Path) -> bool:
    """Returns False if the best parameters are those of the start, by their own record.

    For a run whose progress and result are missing or damaged.
    """
    for path in (best, *best.glob("*/")):
        with suppress(CheckpointError, KeyError, TypeError):
            return bool(read_sealed(path / STATE)["iteration"] > 0)
    return True


def checkpoint_of(text: str) -> Path:
    """Returns the folder of a checkpoint, after verification of every file.

    Args:
        text: ``RUN``, ``RUN:best``, ``RUN:latest`` or ``RUN:12000``, where RUN is a run folder or
            its name below ``runs/``, or ``trained:NAME``; or the folder of the checkpoint itself.
            ``RUN`` alone means :func:`default_checkpoint`.

    Raises:
        UsageError: the run or the checkpoint does not exist, or several policies learned in it.
        CheckpointError: the checkpoint is incomplete.
    """
    if os.path.isfile(Path(text) / "state.json"):
        read_state(Path(text))
        return Path(text)
    named = _NAMED.fullmatch(text)
    name, checkpoint = named.groups() if named else (text, "")
    if (trained := trained_folder(name)) is not None:
        return _chosen(RunFolder(trained, copy_of=name), checkpoint or "best")
    # The name of a run may end like that of a checkpoint: 2026-11-25T10:00.
    for each, wanted in dict.fromkeys([(text, ""), (name, checkpoint)]):
        for path in (Path(each), RUNS / each):
            if os.path.isfile(path / "config.yaml"):
                run = RunFolder(path)
                return _chosen(run, wanted or default_checkpoint(run))
    raise UsageError(
        f"no run '{name}' to start from: neither {name} nor {RUNS / name} has a config.yaml; "
        "write RUN, RUN:best, RUN:latest or RUN:STEP"
    )


def _chosen(run: RunFolder, checkpoint: str) -> Path:
    name = only_policy(Config.load_file(run.config), f"run {run.copy_of or run}", "--from")
    return whole_checkpoint(run, checkpoint, name)


def go_back_to(
    folder: RunFolder, path: Path, note: Note, *, keep_history: int, policy: str = DEFAULT_POLICY
) -> None:
    """Makes a checkpoint of a run its newest one, from which the run continues.

    Newer ones are set aside. Of the best parameters only networks are restored; optimizers start
    anew.

    Args:
        folder: folder of the run.
        path: a checkpoint of it, numbered or best.
        note: called with a line for each checkpoint that is set aside.
        keep_history: ``session_config.checkpoint.keep_history``.
        policy: policy of the checkpoint.
    """
    place = folder.checkpoints / PolicyId(policy).checkpoints
    checkpoints = Checkpoints(place, keep_history=keep_history, note=note)
    if path.name.isdigit():
        checkpoints.go_back(int(path.name), f"above {path.name}, which the run goes on from")
        return
    number = int(read_state(path)["iteration"])
    checkpoints.go_back(number - 1, f"not below {path.name}, which the run goes on from")
    start_with(folder, path, policy=policy, iteration=number)


def start_with(
    folder: RunFolder,
    source: Path,
    *,
    policy: str = DEFAULT_POLICY,
    iteration: int = 0,
    parts: Sequence[str] = (),
) -> None:
    """Writes a first checkpoint of a run, with the networks of another checkpoint.

    Args:
        folder: folder of the run.
        source: folder of the other checkpoint; recorded as ``start_from`` in the new state.
        policy: policy of the run that gets the networks.
        iteration: iteration of the new checkpoint.
        parts: parts of the networks that the run takes from it; empty: all.

    Raises:
        CheckpointError: the disk reported an error.
    """

    def write(new: Path) -> None:
        for file in source.iterdir():
            if file.name != "state.json":
                shutil.copyfile(file, new / file.name)

    state = {"iteration": iteration, "version": 0, "env_steps": 0, "start_from": str(source)}
    state |= {"parts": list(parts)} if parts else {}
    place = folder.checkpoints / PolicyId(policy).checkpoints
    Checkpoints(place, keep_history=1 << 30).save(iteration, state, write)
