"""Checks for resuming a run: permitted and forbidden changes, and resetting its state."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from session.atomic_file import write_atomically
from session.checkpoint import read_state
from session.config import Config
from session.config.config import as_numbers, is_later_default
from session.config.merge import leaves, nearest, paths, quote
from session.config.session_defaults import BUDGETS
from session.errors import CheckpointError, UsageError
from session.folder import RunFolder
from session.launchers.registry import LOCAL, launcher_of
from session.newest_checkpoint import Checkpoints, begins_anew
from surreal_like.data.policy_names import PolicyId
from surreal_like.experiment.user_code import edited_files

_LEARNED = ("algorithm", "learner_config", "env_config")
# Recorded of the agent at each start: what differs there differs elsewhere, or is no setting.
_RECORDED = "learner_config.replay.columns"
_ABSENT = "absent"

Change = tuple[str, str]


def recorded_config(folder: RunFolder) -> Config:
    """Returns the config with which a run was made.

    Raises:
        UsageError: the folder is no run folder.
    """
    if not os.path.isfile(folder.config):
        raise UsageError(
            f"{folder} is no run to resume: it has no config.yaml; without --resume it is begun"
        )
    return folder.read_config()


def changes(before: Config, now: Config, sections: Iterable[str]) -> dict[str, Change]:
    """Returns dotted key -> old and new value, of everything that differs.

    Args:
        before, now: resolved configs.
        sections: the keys of both to compare.
    """
    names = list(sections)
    old, new = (_comparable(config, names) for config in (before, now))
    return {
        path: (_show(old, path), _show(new, path))
        for path in sorted(old.keys() | new.keys())
        if old.get(path, _ABSENT) != new.get(path, _ABSENT)
        and (path in old or not is_later_default(path.partition(".")[2], new[path]))
    }


def _comparable(config: Config, names: Sequence[str]) -> dict[str, Any]:
    plain = Config({name: config.get(name, {}) for name in names}).to_dict()
    as_numbers(plain.get("learner_config", {}))
    return leaves(plain)


def _show(values: Mapping[str, Any], path: str) -> str:
    return quote(values[path]) if path in values else _ABSENT


def check_home(before: Config, launcher: str, folder: RunFolder) -> None:
    """Rejects resuming a run on a launcher that cannot reach its checkpoints.

    A run on Kubernetes has them on a volume of the cluster, other runs in their folder.

    Raises:
        UsageError: the message explains how to resume it.
    """
    was = str((before.get("run") or {}).get("launcher", ""))
    remote = launcher_of(was).remote
    if was == "" or remote == launcher_of(launcher).remote:
        return
    where = "on a volume of the cluster" if remote else "in its folder"
    there = was if remote else LOCAL.name
    raise UsageError(
        f"run {folder} was launched on {was} and its checkpoints are {where}; go on with it there: "
        f"surreal-like launch --resume --folder {folder} --on {there}"
    )


def find_edited(before: Config, folder: RunFolder) -> str:
    """Returns a note if settings of what is learned were edited in the config; else empty."""
    recorded = (before.get("recorded") or {}).get("fingerprint")
    # A trial that has loaded another one has settings of its tuning.
    exploited = "launched_as" in (before.get("run") or {})
    if recorded is None or exploited or recorded == before.fingerprint():
        return ""
    return (
        f"{folder.config} was edited since the run began (its fingerprint is not that of "
        "recorded.fingerprint): goes on with the settings that it has now"
    )


def session_changes(before: Config, now: Config) -> dict[str, Change]:
    """Returns the changes of ``session_config``, all of which a resumed run accepts."""
    found = changes(before, now, ("session_config",))
    found.pop("session_config.folder", None)  # it may have been moved
    return found


def check_same(
    before: Config, now: Config, folder: RunFolder, allowed: Iterable[str] = ()
) -> dict[str, Change]:
    """Rejects resuming with another experiment; returns the allowed changes.

    Args:
        before, now: resolved configs.
        folder: the run.
        allowed: dotted keys that may differ; a section allows all keys below it.

    Raises:
        UsageError: the message lists every key that differs, with both values.
    """
    found = changes(before, now, _LEARNED)
    found = {path: each for path, each in found.items() if not path.startswith(_RECORDED)}
    for file in edited_files(now, folder):
        found.setdefault("algorithm", ("the file in the run's code/", f"{file}, edited"))
    known = [
        path for config in (before, now) for path in paths(config) if path.split(".")[0] in _LEARNED
    ]
    complaint = f"run {folder} cannot go on with another experiment"
    check_allowed(found, list(allowed), known, complaint)
    return found


def check_allowed(
    found: Mapping[str, Change], allowed: Sequence[str], known: Sequence[str], complaint: str
) -> None:
    """Rejects changes that are not allowed, and unknown keys among the allowed ones.

    Args:
        found: changes by their dotted keys.
        allowed: dotted keys; a section allows all keys below it.
        known: all keys that may be named.
        complaint: begin of the message.

    Raises:
        UsageError: the message lists every key that differs, with both values.
    """
    for name in allowed:
        if name not in known:
            raise UsageError(f"--allow-change {name}: there is no such key{nearest(name, known)}")
    refused = {
        path: change
        for path, change in found.items()
        if not any(path == name or path.startswith(f"{name}.") for name in allowed)
    }
    if refused:
        listed = ", ".join(f"{path} was {was}, is {now}" for path, (was, now) in refused.items())
        raise UsageError(
            f"{complaint}: {listed}; put it back, leave the file out to go on as recorded, or "
            f"allow it: --allow-change {','.join(refused)}"
        )


def check_unused(config: Config, folder: RunFolder) -> None:
    """Rejects a run that has used a budget: it would end at once.

    Args:
        config: config of the resumed run.
        folder: the run.

    Raises:
        UsageError: the message names the setting to raise.
    """
    stop = config.session_config.stop
    for name, counter in BUDGETS.items():
        used = reached(folder, counter)
        limit = stop.get(name)
        if limit is not None and used >= limit:
            raise UsageError(
                f"run {folder} has used its budget: session_config.stop.{name} is {limit:g}, and "
                f"{used:g} are used; raise it, as in session_config.stop.{name}={2 * limit:g}"
            )


def check_checkpoints(folder: RunFolder, policies: Iterable[str]) -> str:
    """Rejects a run with only damaged checkpoints; returns a note for the user, or an empty text.

    Args:
        folder: the run.
        policies: names of those that learn.

    Raises:
        CheckpointError: one of them has checkpoints, but none of these is complete.
    """
    notes = {
        name: _check_policy(folder, folder.checkpoints / PolicyId(name).checkpoints)
        for name in policies
    }
    if any(note is not None for note in notes.values()):
        said = (
            f"policy {name} begins anew: it has no checkpoint" if note is None else note
            for name, note in notes.items()
        )
        return "; ".join(filter(None, said))
    updates = reached(folder, "iteration")
    return begins_anew(int(updates)) if updates else ""


def _check_policy(folder: RunFolder, checkpoints: Path) -> str | None:
    """Returns a note on the checkpoints of a policy: empty if the newest is complete; None: none.

    Raises:
        CheckpointError: none of them is complete.
    """
    complaint = ""
    for path in Checkpoints(checkpoints).newest_first():
        try:
            read_state(path)
        except CheckpointError as error:
            complaint = complaint or str(error)
            continue
        return f"going on from the checkpoint before: {complaint}" if complaint else ""
    if complaint:
        raise CheckpointError(
            f"no checkpoint of run {folder} is whole: {complaint}; begin a new run, or move "
            f"{checkpoints} away to begin this one anew"
        )
    return None


def began_with(before: Config) -> dict[str, Any]:
    """Returns the settings of the checkpoint of another run that a run began with."""
    checkpoint = before.session_config.get("checkpoint") or {}
    given = {"start_from": "", "parts": []} | checkpoint
    return {name: given[name] for name in ("start_from", "parts")}


def reached(folder: RunFolder, name: str) -> float:
    """Returns a counter of the run over all its parts, as far as reported."""
    seen = [folder.last_progress(), folder.read_result() or {}]
    return max(each.get(name) or 0.0 for each in seen)


def reopen(folder: RunFolder) -> None:
    """Sets an ended run to running; its result has that status until its end is written."""
    result: Mapping[str, Any] | None = folder.read_result()
    if result is not None:
        running = {**result, "status": "running", "goal_met": None, "reason": ""}
        write_atomically(folder.result, json.dumps(running, indent=2) + "\n")
    for below in (folder.logs, folder.checkpoints, folder.alive):
        below.mkdir(exist_ok=True)
