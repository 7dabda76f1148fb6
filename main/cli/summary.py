"""Summary of a run that has ended, in a few lines for the terminal."""

from __future__ import annotations

import os
import statistics
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from session.addons.hooks import FINDINGS
from session.errors import SurrealError
from session.folder import RunFolder
from session.program import program
from session.show.run_view import RunView, outcome_word, took
from session.show.text import (
    MISSING,
    columns,
    count,
    decimal,
    duration,
    short_time,
    steps_or_updates,
    tenths,
)
from surreal_like.run.train import Run

_WAY = {
    "collect_seconds": "collect",
    "wait_to_send_seconds": "wait to send",
    "to_replay_seconds": "to replay",
    "in_replay_seconds": "in replay",
    "to_learner_seconds": "to learner",
}

_LEAST_WIDTH = 30
# Exit codes: a budget ended before the goal, or a user ended the run.
_RESUMABLE = (3, 130)


def summary(ended: Run, width: int = 0) -> list[str]:
    """Returns the lines; the first one is the outcome.

    Args:
        ended: the run.
        width: width of the terminal, in characters; 0: lines may have any length.
    """
    result = ended.result
    counted = _is_counted(result)
    rows = [
        ["last greedy return", _last(result)],
        ["best greedy return", _best(result)],
        ["training return", _training(result)],
        ["experience", _experience(result)],
        ["", _advice(ended)],
        ["policy lag", _lag(result)],
        # Shares of counted seconds are not those of real seconds.
        ["where the time went", "" if counted else _way(result)],
        ["restarts", _restarts(result)],
        *_findings(ended),
        ["run folder", str(ended.folder)],
    ]
    indent, lines = lay_out([row for row in rows if row[1]], width)
    # Commands are not wrapped, so that a user can copy them in one piece.
    commands = [f"{' ' * indent}{command}" for command in _next(ended)]
    first = _wrap(outcome(result), width)
    return [*first, *lines, "next".ljust(indent) + commands[0].lstrip(), *commands[1:]]


def lay_out(rows: list[list[str]], width: int) -> tuple[int, list[str]]:
    """Arranges labels and texts in two columns; wraps texts that are too long.

    Returns the start of the second column, and the lines.
    """
    indent = max(len(label) for label, _ in rows) + 3
    lines = []
    for label, text in rows:
        parts = _wrap(text, max(width - indent, _LEAST_WIDTH) if width else 0)
        lines += [f"{'' if i else label:<{indent}}{part}" for i, part in enumerate(parts)]
    return indent, lines


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width or len(text), break_long_words=False, break_on_hyphens=False)


def outcome(result: Mapping[str, Any]) -> str:
    """Describes the outcome, in one line."""
    solved = (result.get("solved") or {}).get("greedy_seconds")
    reason = " ".join(str(result.get("reason") or "no reason was left").split())
    if solved is not None and result.get("goal_met"):
        at = tenths(solved)
        if _is_counted(result):
            at += " of counted time"
        if steps := result["solved"]["greedy_env_steps"]:
            at += f" and {count(steps)} env steps"
        if _is_counted(result):
            return f"solved at {at}, {duration(result['real_seconds'])} in all: {reason}"
        return f"solved in {at}: {reason}"
    words = outcome_word(result)
    if result.get("env_steps") is not None:
        time = took(result, counted=_is_counted(result))
        updates = result.get("iterations") or 0
        words += f" after {time} and {steps_or_updates(result['env_steps'], updates)}"
    return words if reason == result.get("status") else f"{words}: {reason}"


def _is_counted(result: Mapping[str, Any]) -> bool:
    """Returns True for a serial run, in which one round counts as a millisecond."""
    return "real_seconds" in result


def _best(result: Mapping[str, Any]) -> str:
    best = result.get("best_eval")
    return _evaluation(best) if best else "no evaluation has finished"


def _last(result: Mapping[str, Any]) -> str:
    """Describes the evaluation of the parameters with which the run has ended."""
    last, why = result.get("final_eval"), result.get("final_eval_reason")
    if last:
        return _evaluation(last)
    return f"not evaluated: {why}" if why and (result.get("iterations") or 0) else ""


def _evaluation(score: Mapping[str, Any]) -> str:
    means = score.get("policies") or {"": score["mean_return"]}
    returns = ", ".join(f"{name} {decimal(mean)}".strip() for name, mean in means.items())
    steps = score.get("env_steps")
    return (
        f"{returns} over {count(score.get('episodes'))} episodes, at update "
        f"{count(score.get('iteration'))}" + (f" and {count(steps)} env steps" if steps else "")
    )


def _training(result: Mapping[str, Any]) -> str:
    means = {
        whose: (result.get(section) or {}).get("mean_return_100")
        for section, whose in (("train", ""), ("guests", " of joined machines and clients"))
    }
    return ", ".join(
        f"{decimal(mean)} over the last 100 episodes{whose}"
        for whose, mean in means.items()
        if mean is not None
    )


def _experience(result: Mapping[str, Any]) -> str:
    rows = result.get("experience")
    if not rows:
        return ""
    text = (
        f"{count(rows['pushed'])} rows pushed = {count(rows['inserted'])} inserted "
        f"+ {count(rows['dropped'])} dropped"
    )
    lost = {name: rows[name] for name in ("holes", "unacked") if rows.get(name)}
    text += "".join(f" + {count(number)} {name}" for name, number in lost.items())
    text += f"; {count(rows['lost'])} lost with a replay shard" if rows.get("lost") else ""
    back = rows.get("rolled_back")
    text += f"; {count(back)} rolled back after bad updates" if back else ""
    learned = rows.get("learned", rows["inserted"])
    text += f"; {count(learned)} learned from" if learned < rows["inserted"] else ""
    times = (result.get("rates") or {}).get("samples_per_insert")
    return text + (f"; each sampled {decimal(times)} times" if times else "")


def _advice(ended: Run) -> str:
    """Names the setting to change if a learner was given few of its rows."""
    if (ended.result.get("experience") or {}).get("too_old"):
        # Imported late, as below: it imports numpy, which must not delay the end of a command.
        from surreal_like.experience.row_accounts import REMEDY, describe_too_old

        if old := describe_too_old(ended.result):
            return f"{old} were too old to be learned from: set {REMEDY}"
    times = (ended.result.get("rates") or {}).get("samples_per_insert")
    try:
        learner = RunFolder(ended.folder).read_config().learner_config
        unused = times is not None and times < 1 and not learner.replay.samples_per_insert
        if not unused:
            return ""
        from surreal_like.replay.replay import load_replay_class

        if load_replay_class(learner).overlap:
            return ""
    except SurrealError:
        return ""
    return (
        f"each row was sampled {decimal(times)} times: set learner_config.replay.samples_per_insert"
        f" ({learner.replay.batch_size}: one update per step)"
    )


def _lag(result: Mapping[str, Any]) -> str:
    lag = result.get("lag") or {}
    if lag.get("mean_versions") is None:
        return ""
    return (
        f"{decimal(lag['mean_versions'])} versions, {decimal(lag['mean_updates'])} updates on "
        f"average; at most {count(lag['max_versions'])} versions"
    )


def _way(result: Mapping[str, Any]) -> str:
    """Returns the mean time of experience in each stage on its way."""
    way = result.get("latency") or {}
    return ", ".join(f"{name} {short_time(way[key])}" for key, name in _WAY.items() if key in way)


def _findings(ended: Run) -> list[list[str]]:
    """Returns what was not written, and what add-ons find in the run, as a row each."""
    try:
        view = RunView(RunFolder(ended.folder), curves=("waiting_share", "experience.dropped"))
        view.refresh()
        found = "; ".join(filter(None, (find(view) for find in FINDINGS)))
        return [["not written", "; ".join(view.lasting())], ["doctor", found]]
    except SurrealError:
        return []


def _restarts(result: Mapping[str, Any]) -> str:
    parts = [
        f"{name} {component['restarts']}x"
        for name, component in (result.get("components") or {}).items()
        if component.get("restarts")
    ]
    return ", ".join(parts)


def _next(ended: Run) -> list[str]:
    """Returns useful next commands."""
    folder, commands = ended.folder, []
    ours, board = program("surreal-like"), program("tensorboard")
    if os.path.isdir(folder / "checkpoints" / "best"):
        commands.append(f"{ours} evaluate {folder}")
    if ended.exit_code in _RESUMABLE:
        commands.append(f"{ours} train --resume --folder {folder}")
    if ended.exit_code == 1:
        commands.append(f"{ours} logs {folder} --level warning")
    return [*commands, f"{board} --logdir {folder / 'tensorboard'}"]


def seeds_table(runs: Mapping[int, Run]) -> str:
    """Returns a table: one row per seed, then the median with the range."""
    rows = [_seed_row(seed, ended) for seed, ended in runs.items()]
    results = [ended.result for ended in runs.values()]
    after = "solved after (counted)" if any(map(_is_counted, results)) else "solved after"
    head = ["seed", "outcome", after, "env steps", "best greedy", "run folder"]
    rows.append(
        [
            "median",
            f"{sum(ended.ok for ended in runs.values())} of {len(runs)}",
            _band([(r.get("solved") or {}).get("greedy_seconds") for r in results], tenths),
            _band([r.get("env_steps") for r in results], count),
            _band([(r.get("best_eval") or {}).get("mean_return") for r in results], decimal),
            "",
        ]
    )
    return columns(head, rows)


def _seed_row(seed: int, ended: Run) -> list[str]:
    result = ended.result
    seconds = (result.get("solved") or {}).get("greedy_seconds")
    best = (result.get("best_eval") or {}).get("mean_return")
    return [
        str(seed),
        outcome(result).split(maxsplit=1)[0] if ended.ok else f"exit code {ended.exit_code}",
        tenths(seconds) if seconds is not None else MISSING,
        count(result.get("env_steps")),
        decimal(best),
        str(ended.folder),
    ]


def _band(values: list[float | None], show: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    low, middle, high = (show(f(known)) for f in (min, statistics.median, max))
    return f"{middle} ({low} to {high})"
