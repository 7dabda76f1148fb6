"""The experiments that come with the library, and the file that a command or a call names.

They are in ``configs/``: beside this package in the repository, inside it where it is installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session.config import Config
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from session.json_file import NUMBER, TEXT, Nullable, read_object

_PACKAGE = Path(__file__).resolve().parents[1]
_ENDINGS = (".yaml", ".yml", ".json")
# What `make learn` has measured: installed, in the repository.
_RESULTS = (_PACKAGE / "results", _PACKAGE.parent / "benchmarks" / "results")
_ROW = {"name": TEXT, "config": TEXT, "seconds": Nullable({"median": NUMBER})}
# In the first comment of a file: what must be installed.
_EXTRA = re.compile(r"^(?:#.*\n)*#.*\bextra (\w+)")


def shipped_folder() -> Path:
    """Returns ``configs/``, which the unpacked code of a run does not have."""
    installed = _PACKAGE / "configs"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"


def _find_shipped() -> dict[str, Path]:
    """Returns name -> file of each shipped experiment; none in the unpacked code of a run."""
    return {file.stem: file for file in sorted(shipped_folder().glob("*.yaml"))}


def find_experiment(place: str | Path) -> Path:
    """Returns the experiment file, or tune file, that a user names.

    Args:
        place: path of a file, or the name of a shipped experiment, such as ``cartpole_dqn``.

    Raises:
        ConfigError: there is neither; names the nearest one.
    """
    # A call may give anything.
    path, shipped = Path(str(place)), _find_shipped()
    if str(place) in shipped:
        return shipped[str(place)]
    if os.path.exists(path) or path.suffix not in ("", *_ENDINGS):
        return path
    if os.path.islink(path):
        raise ConfigError(f"{path}: cannot be read: it links to {os.readlink(path)}, which is gone")
    own = [file for folder in (".", "configs") for file in Path(folder).glob("*.y*ml")]
    known = {name: name for name in shipped}
    known |= {file.stem: str(file) for file in own if os.path.isfile(file)}
    otherwise = "surreal-like list experiments shows those that come with it; or give a file's path"
    hint = did_you_mean(path.stem, known, shown=known.__getitem__, otherwise=otherwise)
    wrong = "cannot be read: No such file or directory" if path.suffix else "no such experiment"
    raise ConfigError(f"{path}: {wrong}; {hint}")


def is_experiment(word: str) -> bool:
    """Returns True for a path of an experiment file and for the name of a shipped one."""
    return Path(word).suffix in _ENDINGS or word in _find_shipped()


@dataclass(frozen=True, slots=True)
class Shipped:
    """Facts about a shipped experiment.

    Args:
        name: name on a command line.
        environment: ``env_config.env_name``.
        algorithm: algorithm, or those of its policies.
        goal: goal of a run, or the budget that ends it; of a tuning the number of trials.
        seconds: median time in which it was learned, None if that was not measured [s].
        extra: extra that must be installed; empty: none.
    """

    name: str
    environment: str
    algorithm: str
    goal: str
    seconds: float | None
    extra: str


def list_experiments() -> list[Shipped]:
    """Returns the shipped experiments and tunings, sorted by name."""
    measured = dict(_read_times())
    return [_describe(name, file, measured.get(name)) for name, file in _find_shipped().items()]


def _describe(name: str, file: Path, seconds: float | None) -> Shipped:
    extra = _EXTRA.search(file.read_text(encoding="utf-8"))
    given = Config.load_file(str(file))
    trials = (given.get("tune") or {}).get("trials")
    if "experiment" in given:
        given = Config.load_file(str(file.with_name(given.experiment))) | given
    names = [each.get("algorithm") for each in (given.get("policies") or {}).values()]
    algorithms = dict.fromkeys([given.algorithm, *filter(None, names)])
    goal = f"{trials} trials" if trials else _goal(given.session_config.stop)
    env_name, words = given.env_config.env_name, ", ".join(algorithms)
    return Shipped(name, env_name, words, goal, seconds, extra[1] if extra else "")


def _goal(stop: Mapping[str, Any]) -> str:
    if stop.get("eval_returns"):
        return ", ".join(f"{policy} {score}" for policy, score in stop["eval_returns"].items())
    if stop.get("metric"):
        return f"{stop['metric']} {stop['above']}"
    if stop.get("eval_return") is not None:
        return str(stop["eval_return"])
    if stop.get("env_steps"):
        return f"{stop['env_steps']:,} steps"
    return f"{stop['iterations']:,} updates"


def _read_times() -> Iterator[tuple[str, float]]:
    """Yields name and median time of the experiments that were learned with their own settings."""
    for folder in _RESULTS:
        for file in filter(Path.is_file, (folder / "learn.json", folder / "learn_multi.json")):
            for row in read_object(file, {"learned": [_ROW]})["learned"]:
                if row["name"] == row["config"] and row["seconds"]:
                    yield row["name"], row["seconds"]["median"]
