"""Numbers, goal, budgets and components of a run as texts, for all layouts of a run."""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple

from session.config import Config
from session.program import path_from_here
from session.show.components import LEFT_OUT, RIGHT, component_table
from session.show.progress import shown_evaluations
from session.show.run_view import Budget, RunView
from session.show.text import bar, columns, count, decimal, duration, fit_table, percent, rate

BAR_WIDTH = 24
_GAP = "  "
_TRAINING = "last 100 episodes"


class Number(NamedTuple):
    """One number as text: its value, words that belong to the value, and a second value."""

    name: str
    text: str
    unit: str = ""
    note: str = ""

    @property
    def words(self) -> str:
        """Value, unit and note."""
        return ", ".join(filter(None, (f"{self.text} {self.unit}".rstrip(), self.note)))


def heading(view: RunView, *words: str) -> str:
    """Lays out title, further words and folder of a run."""
    place = view.folder.copy_of or path_from_here(view.folder.path)
    return " · ".join([view.title, *filter(None, words), place])


def state_line(view: RunView) -> str:
    """Lays out state, duration and reason of the end of a run."""
    state, wall = view.state, view.line.get("wall_seconds")
    if state == "running" and view.launcher:
        state += " in one thread" if view.counted else f" on {view.launcher}"
    after = f"after {view.time(wall)}" if wall is not None else ""
    return " · ".join(dict.fromkeys(filter(None, [state, after, view.reason])))


def headline(view: RunView) -> tuple[list[Number], list[Number]]:
    """Formats the newest numbers of a run: amounts and rates, then returns, lag and waiting.

    Both are empty before the first report.
    """
    line, rates = view.line, view.rates
    if not line:
        return [], []
    last, best = ((line.get(name) or {}).get("mean_return") for name in ("eval", "best_eval"))
    lag, repeated = line["lag"], line.get("repeated_iterations")
    steps, updates = rates.get("env_steps_per_second"), rates.get("updates_per_second")
    again = f", {count(repeated)} repeated" if repeated else ""
    size = (line.get("replay") or {}).get("size")
    share = None if size is None else size / replay_capacity(view.config)
    mean_updates = f"{count(lag.get('mean_updates'))} updates"
    amounts = [
        Number("env steps", count(line["env_steps"]), note=rate(steps)),
        Number("updates", count(line["iterations"]), note=rate(updates) + again),
        Number("episodes", count(line["episodes"])),
        Number("replay", count(size), note=percent(share)),
        *_clients(view),
    ]
    returns = [
        Number("greedy return", decimal(last), note=f"best {decimal(best)}"),
        Number("training return", decimal(line["train"]["mean_return_100"]), note=_TRAINING),
        Number("policy lag", decimal(lag["mean_versions"]), "versions", mean_updates),
        Number("sampled", decimal(rates.get("samples_per_insert")), "times each row"),
        # Here, as a longer name in the first column would not leave room for 80 columns.
        Number("learner waits", percent(line.get("waiting_share"))),
    ]
    if guests := line.get("guests"):
        mean = decimal(guests["mean_return_100"])
        returns.append(Number("return of guests", mean, note="does not count"))
    for name, shown in shown_evaluations(line).items():
        mean = decimal(shown.get("mean_return"))
        returns.append(Number(f"{name} return", mean, note="does not judge"))
    return amounts, returns


def _clients(view: RunView) -> list[Number]:
    """Formats the sessions of all gateways, and the time to an answer of the slowest one."""
    rows = view.components.values()
    sessions = [each.sessions for each in rows if each.sessions is not None]
    if not sessions:
        return []
    times = [each.answer_seconds for each in rows if each.answer_seconds is not None]
    note = f"p50 {decimal(1000.0 * max(times))} ms" if times else ""
    return [Number("clients", count(sum(sessions)), note=note)]


def numbers_table(view: RunView) -> list[list[str]]:
    """Lays out :func:`headline` in six columns: name, value, and the rest, twice."""
    pairs = zip_longest(*headline(view), fillvalue=Number("", ""))
    texts = [[(n.name, n.text, ", ".join(filter(None, n[2:]))) for n in pair] for pair in pairs]
    return [[*left, *right] for left, right in texts]


POLICY_HEAD = (
    *("policy", "updates", "version", "lag", "train return", "greedy return"),
    *("rows/s", "updates/s"),
)


def policies_table(view: RunView) -> list[list[str]]:
    """Lays out the numbers of each policy below POLICY_HEAD; empty with one policy only."""
    return [
        [
            policy,
            count(each["iteration"]),
            count(each["version"]),
            decimal(each["lag"]["mean_versions"]),
            decimal(each["train"]["mean_return_100"]),
            decimal(each["eval"]["mean_return"]),
            rate(each["rates"]["agent_steps_per_second"]).removesuffix("/s"),
            rate(each["rates"]["updates_per_second"]).removesuffix("/s"),
        ]
        for policy, each in (view.line.get("policies") or {}).items()
    ]


def conditions(view: RunView, seconds: float | None = None) -> list[tuple[str, float, str]]:
    """Formats goals and budgets: name, reached or used share, what is reached or used of what.

    Args:
        view: the state of the run.
        seconds: real duration so far, if that is newer than the last report.
    """
    found = []
    if goals := view.goals():
        texts = [
            f"{decimal(reached)} of {decimal(wanted)} {name}" for name, wanted, reached in goals
        ]
        share = min(share_of(reached, wanted) for _, wanted, reached in goals)
        found.append(("goal", share, ", ".join(texts)))
    budgets = view.budgets()
    return found + [("budget", each.share, _budget(view, each, seconds)) for each in budgets]


def share_of(reached: float | None, wanted: float) -> float:
    """Returns the share of a goal that is reached, 0 to 1; for negative goals the inverse ratio."""
    if reached is None:
        return 0.0
    if reached >= wanted:
        return 1.0
    return reached / wanted if wanted > 0 else wanted / reached


def _budget(view: RunView, budget: Budget, seconds: float | None) -> str:
    if budget.name == "seconds":
        used = budget.used if view.counted or seconds is None else seconds
        return f"{duration(used)} of {view.time(budget.limit)}"
    text = f"{count(budget.used)} of {count(budget.limit)} {budget.name.replace('_', ' ')}"
    if budget.left_seconds is not None and budget.used:
        text += f", {duration(budget.left_seconds)} left"
    return text


def overview(view: RunView, width: int = 0) -> str:
    """Lays out all that there is to show of a run, as lines of text.

    Args:
        view: the state of the run.
        width: width of the terminal, in characters; 0: lines may have any length.
    """
    going = view.state == "running"
    standstill = view.line.get("standstill") if going else ""
    pages = [f"{name}: {address}" for name, address in view.pages.read().items()]
    damage = view.folder.result_damage
    warnings = [damage, standstill, view.missing_metric(), *view.lasting()]
    first = [heading(view), state_line(view), _task(view), *warnings, *pages]
    limits = conditions(view) if going and view.line else []
    bars = [[name, bar(share, BAR_WIDTH), text] for name, share, text in limits]
    table, policies = component_table(view.components.values()), policies_table(view)
    right = range(1, len(POLICY_HEAD))
    blocks = [
        "\n".join(filter(None, first)),
        columns([], numbers_table(view), right=(1, 2, 4), gap=_GAP),
        columns(POLICY_HEAD, policies, right=right, gap=_GAP) if policies else "",
        columns([], bars, gap=_GAP),
        fit_table(table, width, spare=LEFT_OUT, right=RIGHT),
    ]
    return "\n\n".join(filter(None, blocks))


def _task(view: RunView) -> str:
    """Formats the newest task of a run; empty without one."""
    task = view.line.get("task") or {}
    shown = ", ".join(f"{name} {value}" for name, value in task.get("settings", {}).items())
    return f"task {task['number']}: {shown}" if shown else ""


def replay_capacity(config: Config) -> int:
    """Returns the rows that all replays of a run have room for: each policy has its own."""
    policies = [
        each for each in (config.get("policies") or {}).values() if "learner_config" in each
    ]
    rooms = [each.learner_config.replay.capacity for each in policies or [config]]
    return int(sum(rooms))
