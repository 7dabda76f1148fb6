"""``surreal-like list``: algorithms, environments, shipped experiments, trained policies, runs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from main.cli.arguments import Option, Parser
from main.cli.output import terminal_width
from main.cli.runs import all_runs, is_tuning, of_tunings
from session.addons.hooks import FACTS, is_url, runs_at
from session.config import Config
from session.errors import SurrealError, UsageError
from session.folder import RUNS, RunFolder
from session.launchers.registry import launcher_of
from session.program import install_line
from session.show.run_view import state_of, took
from session.show.text import GAP, MISSING, columns, count, decimal, short_time
from surreal_like.experiment.shipped import list_experiments
from surreal_like.experiment.trained import list_trained


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser(
        "list",
        "Shows what there is to train, and what was trained.",
        Option("what", choices=("algorithms", "environments", "experiments", "trained", "runs")),
        Option(
            "word",
            nargs="?",
            metavar="WORD",
            help="with environments: only names that hold it; with runs: URL below which they are "
            "mirrored",
        ),
        Option("--json", action="store_true", help="with runs: print as JSON"),
        Option(
            "--specs",
            metavar="NAME",
            help="with environments: print the specs of one as YAML for an experiment file",
        ),
    )
    # `list URL` is short for `list runs URL`.
    given = parser.parse_args(["runs", *argv] if any(map(is_url, argv[:1])) else argv)
    if given.specs and given.what != "environments":
        raise UsageError(
            f"--specs belongs to environments: list environments --specs {given.specs}"
        )
    at_url = given.what == "runs" and is_url(given.word)
    if given.word and given.what != "environments" and not at_url:
        raise UsageError(f"a word belongs to environments: list environments {given.word}")
    if given.json and given.what != "runs":
        raise UsageError("--json belongs to runs: list runs --json")
    if given.specs:
        _specs(given.specs)
    elif given.what == "algorithms":
        _algorithms()
    elif given.what == "environments":
        _environments(given.word or "")
    elif given.what == "experiments":
        _experiments()
    elif given.what == "trained":
        _policies()
    else:
        _runs(given.word, as_json=given.json)
    return 0


def _algorithms() -> None:
    from surreal_like.algorithm.catalog import describe_algorithms

    rows = [
        [
            name,
            ", ".join(known.actions) + (" within bounds" if known.bounded else ""),
            f"{known.learns_from}: {' or '.join(known.replay)}",
            " or ".join(known.memory) or "none",
            known.path,
        ]
        for name, known in describe_algorithms().items()
    ]
    print(columns(["name", "actions", "learns from", "memory", "class"], rows))
    print(
        "\nObservations, with each of them: boxes, images, discrete, multi-discrete and"
        "\nmulti-binary ones, and dicts and tuples of these, of any depth."
        "\nYour own: package.module:Class, or the path of a .py file, after --algorithm"
    )


def _environments(word: str) -> None:
    """Prints names in columns on a terminal, else one per line; marks those that need an extra."""
    from surreal_like.env.kinds import extra_of, list_environments

    names = [name for name in list_environments() if word.lower() in name.lower()]
    if not names:
        raise UsageError(f"no environment holds '{word}'; surreal-like list environments shows all")
    extras = {name: extra_of(name) for name in names}
    shown = [name + (f" [{extras[name]}]" if extras[name] else "") for name in names]
    print(in_columns(shown, terminal_width()))
    for extra in sorted({*extras.values()} - {""}):
        print(f"[{extra}]: {install_line(extra)}")


def _experiments() -> None:
    found = list_experiments()
    rows = [
        [
            *(each.name, each.environment, each.algorithm, each.goal),
            MISSING if each.seconds is None else short_time(each.seconds),
            each.extra,
        ]
        for each in found
    ]
    head = ["name", "environment", "algorithm", "goal", "time", "extra"]
    print(columns(head, rows, right=(4,)))
    print(
        "\nTrain one: surreal-like train NAME; one with trials: surreal-like tune NAME"
        "\ntime: median of three seeds, from the command until the goal is known to be reached, on"
        "\ntwo cores without a GPU; -: not measured. What an extra needs is installed by:"
    )
    for extra in sorted({each.extra for each in found} - {""}):
        print(f"{extra}: {install_line(extra)}")


def _policies() -> None:
    cards = list_trained()
    rows = [
        [
            *(name, card.environment, card.algorithm, count(card.env_steps)),
            card.reached,
            card.extra,
        ]
        for name, card in cards.items()
    ]
    head = ["name", "environment", "algorithm", "env steps", "mean return", "extra"]
    print(columns(head, rows, right=(3, 4)))
    print(
        "\nShow one: surreal-like play NAME --trained; go on from one, if one policy has learned:"
        "\nsurreal-like train NAME --from trained:NAME; mean return: of fresh episodes, and its"
        "\nstandard error"
    )
    for extra in sorted({card.extra for card in cards.values()} - {""}):
        print(f"{extra}: {install_line(extra)}")


def in_columns(texts: Sequence[str], width: int) -> str:
    """Arranges texts in as many columns as fit, in column order.

    Args:
        texts: one per cell.
        width: width of the terminal, in characters; 0: one text per line.
    """
    room = max(map(len, texts)) + len(GAP)
    number = max(1, (width + len(GAP)) // room)
    height = -(-len(texts) // number)
    rows = [texts[row::height] for row in range(height)]
    return "\n".join("".join(text.ljust(room) for text in row).rstrip() for row in rows)


def _specs(name: str) -> None:
    """Prints the part of an experiment file that replaces an environment that is not installed.

    Of an environment of several agents it prints the specs of each.
    """
    import yaml

    from surreal_like.env.registry import SeveralAgents, derive_joint_specs, derive_specs

    config = Config({"env_name": name})
    specs: dict[str, Any] = {"env_name": name}
    try:
        specs["obs_spec"], specs["action_spec"] = derive_specs(config)
    except SeveralAgents:
        specs["agents"] = {
            agent: {"obs_spec": obs_spec, "action_spec": action_spec}
            for agent, (obs_spec, action_spec) in derive_joint_specs(config).items()
        }
    print(yaml.safe_dump({"env_config": specs}, sort_keys=False, default_flow_style=None), end="")


def _runs(url: str | None, *, as_json: bool) -> None:
    """Prints all runs, or those mirrored below a URL; the one started last is at the end."""
    found = _find_mirrored(url) if url else _find_here()
    if as_json:
        print(json.dumps(found))
        return
    if not found:
        where = url or f"{RUNS}/"
        print(f"no runs below {where}; begin one: surreal-like train cartpole_dqn")
        return
    head = ["run", "state", "launcher", "algorithm", "environment", "seed", "best return"]
    rows = [_row(known) for known in found]
    print(columns([*head, "env steps", "took"], rows, right=(5, 6, 7, 8)))


def _find_here() -> list[Mapping[str, Any]]:
    return [
        of_tunings(FACTS)(each) if is_tuning(each) else _find_known(each) for each in all_runs()
    ]


def _find_mirrored(url: str) -> list[Mapping[str, Any]]:
    """Returns the facts of mirrored runs, in the order of their newest copies."""
    found = []
    for place, copied, folder in runs_at(url):
        known = {**_find_known(folder), "folder": place}
        if not folder.over:
            known["state"] = f"copied {short_time(max(0.0, time.time() - copied))} ago"
        found.append((copied, known))
    return [known for _, known in sorted(found, key=lambda each: each[0])]


def _find_known(folder: RunFolder) -> dict[str, Any]:
    """Reads the facts of a run from its files; None for unknown facts."""
    # A run that goes on has no result yet, but progress.
    result = folder.read_result() or folder.last_progress()
    try:
        config = folder.read_config()
        what = {
            "launcher": (config.get("run") or {}).get("launcher"),
            "algorithm": str(config.algorithm),
            "environment": str(config.env_config.env_name),
            "seed": config.session_config.seed,
        }
    except SurrealError:
        what = dict.fromkeys(("launcher", "algorithm", "environment", "seed"))
    return {
        "run": folder.path.name,
        "folder": str(folder.path),
        "state": state_of(folder, launcher=what["launcher"]),
        **what,
        "best_return": (result.get("best_eval") or {}).get("mean_return"),
        "env_steps": result.get("env_steps"),
        "wall_seconds": result.get("wall_seconds"),
        "real_seconds": result.get("real_seconds"),
    }


def _row(known: Mapping[str, Any]) -> list[str]:
    names = ("run", "state", "launcher", "algorithm", "environment", "seed")
    return [
        *(MISSING if known[name] is None else str(known[name]) for name in names),
        decimal(known["best_return"]),
        count(known["env_steps"]),
        took(known, counted=launcher_of(known["launcher"] or "").one_thread),
    ]
