"""Plans a run without starting it: its config, its processes, and the source of each setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session.component import Topology
from session.config import Config, apply_overrides, explain
from session.default_configs import BASE_CONFIG
from session.folder import RunFolder
from session.launchers.launcher import make_addresses, protect, write_run_files
from surreal_like.code_snapshot import keep_code
from surreal_like.experiment import defaults, extended, read_experiment, resolve_elsewhere
from surreal_like.run_folder import held
from surreal_like.topology import make_topology


@dataclass(frozen=True, slots=True)
class Plan:
    """The run that ``train`` would start.

    Args:
        config: the resolved experiment.
        topology: its components, in start order.
    """

    config: Config
    topology: Topology


def plan_experiment(
    path: str | Path | None,
    overrides: Sequence[str] = (),
    *,
    algorithm: str | None = None,
    env_name: str | None = None,
) -> Plan:
    """Resolves an experiment; if its environment is not installed, its specs must be given.

    Args:
        path: experiment file.
        overrides: ``section.key=value``.
        algorithm, env_name: replace the file's.

    Raises:
        ConfigError: a setting is wrong.
        MissingExtra: the environment is not installed, and its specs are not given.
    """
    user = read_experiment(path, overrides, algorithm=algorithm, env_name=env_name)
    config = resolve_elsewhere(user, must_be_installed=False)
    return Plan(config, make_topology(config))


def explain_experiment(
    path: str | Path | None,
    overrides: Sequence[str] = (),
    *,
    algorithm: str | None = None,
    env_name: str | None = None,
) -> dict[str, tuple[Any, str]]:
    """Returns dotted key -> value, and its source: default, algorithm, file or command line.

    The algorithm is imported into this process.

    Args:
        path: experiment file.
        overrides: ``section.key=value``.
        algorithm, env_name: replace the file's.

    Raises:
        ConfigError: a setting is wrong.
    """
    user = read_experiment(path, overrides, algorithm=algorithm, env_name=env_name)
    chosen = Config({})
    if algorithm is not None:
        chosen.algorithm = algorithm
    if env_name is not None:
        chosen.env_config = {"env_name": env_name}
    default = defaults(user.algorithm)
    extended(user, default.copy().extend(BASE_CONFIG, abstract=True))
    return explain(
        [
            ("default", BASE_CONFIG),
            (f"algorithm {user.algorithm}", default),
            (str(path), user),
            ("command line", apply_overrides(chosen, overrides)),
        ]
    )


def write_plan(plan: Plan, path: Path) -> None:
    """Writes the run folder for components that are started by hand.

    Raises:
        UsageError: the folder is not empty.
    """
    with held(path) as folder:
        config = plan.config
        config.session_config.folder = str(path)
        keep_code(config, folder)
        protect(folder, config)
        write_run_files(folder, plan.topology, make_addresses(plan.topology, config, folder))
        config.dump_file(RunFolder(path).config)
