"""The process that resolves experiments: ``python -P -m surreal_like.experiment.resolve_process``.

Resolving needs the algorithm (which imports torch) and one environment (whose constructor runs
arbitrary code), so a run does it in a short process of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from session.config.config import Config
from session.errors import SurrealError, UsageError, describe
from session.json_file import read_object
from surreal_like.experiment.resolve import resolve

# A complete config, or the error of an experiment that cannot be resolved.
Resolved: TypeAlias = Config | SurrealError
# The program of that process.
MODULE = "surreal_like.experiment.resolve_process"


def resolve_elsewhere(user: Config, *, must_be_installed: bool = True) -> Config:
    """Does the same as :func:`resolve`, in a child process.

    Raises:
        SurrealError: the error of the child, with its message.
    """
    return only_one(try_elsewhere([user], must_be_installed=must_be_installed))


def try_elsewhere(
    users: Sequence[Config], *, must_be_installed: bool = True, seconds: float = math.inf
) -> list[Resolved]:
    """Resolves experiments in a child process, as :func:`try_in_process` does."""

    def run(*paths: str) -> str:
        command = [sys.executable, "-P", "-m", MODULE, *paths]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr

    return try_in_process(run, users, must_be_installed=must_be_installed, seconds=seconds)


def try_all(
    users: Sequence[Config],
    known: Config | None = None,
    *,
    must_be_installed: bool = True,
    seconds: float = math.inf,
) -> list[Resolved]:
    """Returns for each experiment its complete config, or the error.

    Args:
        users: users from :func:`read_experiment`.
        known: as in :func:`resolve`; None: the first one that can be resolved.
        must_be_installed: as in :func:`resolve`.
        seconds: time after which the remaining ones are left out.
    """
    found: list[Resolved] = []
    deadline = time.monotonic() + seconds
    for user in users:
        if found and time.monotonic() > deadline:
            break
        try:
            config = resolve(user, must_be_installed=must_be_installed, known=known)
            found.append(config)
            known = known or config
        except SurrealError as error:
            found.append(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise any
            text = f"the experiment could not be resolved: {describe(error)}"
            found.append(SurrealError(text))
    return found


def only_one(found: Sequence[Resolved]) -> Config:
    """Returns the only config of a result of :func:`try_all`; raises it if it is an error."""
    [only] = found
    if isinstance(only, SurrealError):
        raise only
    return only


def try_in_process(
    run: Callable[[str, str], str],
    users: Sequence[Config],
    known: Config | None = None,
    *,
    must_be_installed: bool = True,
    seconds: float = math.inf,
) -> list[Resolved]:
    """Resolves experiments in another process; the other arguments and the result as try_all.

    Args:
        run: runs :func:`main` with two arguments there; returns the standard error of the process.

    Raises:
        SurrealError: there is no answer; the message has the last words of that process.
    """
    with tempfile.TemporaryDirectory(prefix="sl-resolve-") as folder:
        asked, answer = Path(folder, "asked.json"), Path(folder, "answer.json")
        request = {
            "users": [user.to_dict() for user in users],
            "known": known.to_dict() if known is not None else None,
            "must_be_installed": must_be_installed,
            "seconds": seconds,
        }
        asked.write_text(json.dumps(request))
        stderr = run(str(asked), str(answer))
        if not answer.exists():
            words = stderr.strip().splitlines() or ["it left no word"]
            raise SurrealError(f"the experiment could not be resolved: {words[-1]}")
        return [_resolve(each) for each in read_object(answer)["answers"]]


def _resolve(data: Mapping[str, Any]) -> Resolved:
    if "error" not in data:
        return Config(data)
    kind = UsageError if data["exit_code"] == UsageError.exit_code else SurrealError
    return kind(data["error"])


def _plain(found: Resolved) -> dict[str, Any]:
    if isinstance(found, SurrealError):
        return {"error": str(found), "exit_code": found.exit_code}
    return found.to_dict()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the resolving process; its arguments are the paths of request and answer."""
    parser = argparse.ArgumentParser(prog=f"python -P -m {MODULE}")
    parser.add_argument("asked", type=Path)
    parser.add_argument("answer", type=Path)
    given = parser.parse_args(argv)
    request = read_object(given.asked)
    found = try_all(
        [Config(user) for user in request["users"]],
        Config(request["known"]) if request["known"] is not None else None,
        must_be_installed=request["must_be_installed"],
        seconds=request["seconds"],
    )
    given.answer.write_text(json.dumps({"answers": list(map(_plain, found))}))
    return max((each.exit_code for each in found if isinstance(each, SurrealError)), default=0)


if __name__ == "__main__":
    raise SystemExit(main())
