"""``surreal-like list``: algorithms, environments, runs."""

from __future__ import annotations

from collections.abc import Sequence

from main.cli.columns import columns
from main.cli.figures import count, decimal, duration
from main.cli.parser import Parser
from main.cli.runs import all_runs
from main.cli.tail import last_object
from session.config import Config
from session.errors import SurrealError, UsageError
from session.folder import RunFolder
from session.heartbeat import read_beats
from surreal_like.run_folder import RUNS

_ALIVE = ("starting", "running", "draining")
_SILENT_SECONDS = 10.0


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("list", "Shows what there is to train, and what was trained.")
    parser.add_argument("what", choices=("algorithms", "environments", "runs"))
    parser.add_argument(
        "--specs",
        metavar="NAME",
        help="with environments: the specs of one, as an experiment file holds them",
    )
    given = parser.parse_args(argv)
    if given.specs and given.what != "environments":
        raise UsageError(
            f"--specs belongs to environments: list environments --specs {given.specs}"
        )
    if given.specs:
        _specs(given.specs)
    elif given.what == "algorithms":
        _algorithms()
    elif given.what == "environments":
        _environments()
    else:
        _runs()
    return 0


def _algorithms() -> None:
    from surreal_like.algorithm.registry import list_algorithms

    print(columns(["name", "class"], [[name, path] for name, path in list_algorithms().items()]))
    print("\nYour own: package.module:Class, or the path of a .py file, after --algorithm")


def _environments() -> None:
    from surreal_like.env.registry import list_environments

    for name in list_environments():
        print(name)


def _specs(name: str) -> None:
    """The part of an experiment file that stands in for an environment that is not installed."""
    import yaml

    from surreal_like.env.registry import derive_specs

    obs_spec, action_spec = derive_specs(Config({"env_name": name}))
    specs = {"env_name": name, "obs_spec": obs_spec, "action_spec": action_spec}
    print(yaml.safe_dump({"env_config": specs}, sort_keys=False, default_flow_style=None), end="")


def _runs() -> None:
    folders = all_runs()
    if not folders:
        print(f"no runs below {RUNS}/; begin one: surreal-like train configs/cartpole_dqn.yaml")
        return
    head = ["run", "state", "algorithm", "environment", "best return", "env steps", "took"]
    print(columns(head, [_row(folder) for folder in folders], right=(4, 5, 6)))


def _row(folder: RunFolder) -> list[str]:
    # What still runs has no result yet, but it reports.
    result = folder.read_result() or last_object(folder.progress) or {}
    best = result.get("best_eval") or {}
    try:
        config = Config.load_file(folder.config)
        what = [str(config.algorithm), str(config.env_config.env_name)]
    except SurrealError:
        what = ["?", "?"]
    return [
        folder.path.name,
        state_of(folder),
        *what,
        decimal(best.get("mean_return")),
        count(result.get("env_steps")),
        duration(result.get("wall_seconds")),
    ]


def state_of(folder: RunFolder) -> str:
    """Where a run stands, in a word or two."""
    result = folder.read_result() or {}
    status = str(result.get("status", "running"))
    if folder.in_use or (status == "running" and _is_heard(folder)):
        return "running"
    if status == "running":
        return "cut off" if folder.progress.exists() else "planned"
    if status != "stopped":
        return status
    return {True: "goal met", False: "goal not met", None: "done"}[result.get("goal_met")]


def _is_heard(folder: RunFolder) -> bool:
    """True if somebody is alive: components may have been started by hand."""
    beats = read_beats(folder.alive).values()
    return any(b.state in _ALIVE and not b.late(_SILENT_SECONDS) for b in beats)
