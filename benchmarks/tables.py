"""Tables of documents, made of kept results."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from machine import spread

from session.show.text import plural

LEARNED_CRITERION = (
    "greedy mean return of 100 episodes at or above the goal, and again over 100 more with the "
    "same parameters, all on seeds never used before; the clock runs from the command's start, "
    "start-up and evaluations included, until that is known"
)
# Packages whose versions matter for rates, and for what is learned.
OF_RATES = ("numpy", "pyzmq", "torch")
OF_LEARNING = ("torch", "gymnasium")
# Day since when the steps of a version are those of the rows that it has learned from.
CHANGED = "2026-11-28"
_WHAT_CHANGED = "[what changed](results.md#how-steps-are-counted)"
# Labels of sides that are this system with another setting, which no summary takes for a peer.
OTHER_SETTINGS = frozenset(
    {
        "1 shard",
        "1-step rows",
        "8 copies",
        "highest so far",
        "keep: none",
        "load_policy, torch",
        "stored goals",
        "with 1",
        "without noise",
        "without the part",
    }
)
# Load of the machine before a run up to which its seconds count: what the run before has left.
QUIET = 4.0
_STEPS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Formats a table of Markdown; nobody edits it by hand, so cells have no spaces around."""
    lines = [head, *rows]
    cells = [f"|{'|'.join(line)}|" for line in lines]
    return "\n".join([cells[0], "|" + "---|" * len(head), *cells[1:]])


def verdict(passed: bool) -> str:
    """Formats whether a requirement was met."""
    return "holds" if passed else "**missed**"


def _named(row: Mapping[str, Any], name: str) -> str:
    """Formats a name, with a mark where what was required of its row was missed."""
    return name if row["passed"] else f"{name} {verdict(passed=False)}"


def amount(value: Mapping[str, float]) -> str:
    """Formats median and range: ``2.1 M (1.9 to 2.2 M)``."""
    size, sign = next(
        ((size, f" {sign}") for size, sign in _STEPS if value["median"] >= size), (1.0, "")
    )
    low, middle, high = (_short(value[key] / size) for key in ("min", "median", "max"))
    return f"{middle}{sign} ({low} to {high}{sign})"


def times(ratio: Mapping[str, float]) -> str:
    """Formats a ratio: ``12 x (11 to 13)``."""
    low, middle, high = (_short(ratio[key]) for key in ("min", "median", "max"))
    return f"{middle} x ({low} to {high})"


def _short(number: float) -> str:
    """Formats three digits, without exponent."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def span(values: Sequence[float] | Mapping[str, float] | None, form: str) -> str:
    """Formats ``7.1 (5.9 to 9.0)``: median, least and most; empty without values.

    Args:
        values: or their ``spread``.
        form: of each number.
    """
    if not values:
        return ""
    if not isinstance(values, Mapping):
        if len(values) == 1:
            return format(values[0], form)
        values = spread(list(values))
    low, middle, high = (format(values[key], form) for key in ("min", "median", "max"))
    return f"{middle} ({low} to {high})"


def provenance(
    machine: Mapping[str, Any], names: Iterable[str], peers: Mapping[str, str] | None = None
) -> str:
    """Formats command, date, machine and versions in two sentences.

    Args:
        machine: of the result.
        names: of the packages here that matter.
        peers: versions of others.
    """
    versions = machine["versions"]
    ours = {"surreal_like": versions["surreal-like"]} if "surreal-like" in versions else {}
    ours |= {name: versions[name] for name in names}
    named = {"Python": machine["python"], **(peers or {}), **ours}
    listed = ", ".join(f"{name} {version.partition('+')[0]}" for name, version in named.items())
    return (
        f"`{machine['command']}`, {machine['date']}: {machine['processor']}, {machine['cores']} "
        f"cores, {machine['memory_gib']} GiB. {listed}."
    )


def load_before(found: Mapping[str, Any]) -> str:
    """Formats the load of the machine before a measurement, as a sentence."""
    return f"Load of the machine before it: {found['load']:.1f}."


# -- sides that were measured in turn ------------------------------------------------------------


def tables(found: Mapping[str, Any]) -> str:
    """Formats all groups of one ``results/*.json``: a bold heading, a description, a table."""
    return "\n\n".join(_group(group) for group in found["groups"])


def _group(group: Mapping[str, Any]) -> str:
    """Formats one group: a line for each quantity and each peer that was measured."""
    rows = []
    for line in group["lines"]:
        ours = amount(group["sides"][line["side"]]["value"])
        for peer, ratio in line["ratios"].items():
            side = group["sides"][peer]
            cells = [side["label"], *_bounded(side, amount(side["value"]), times(ratio))]
            rows.append([line["what"], ours, *cells, line["wanted"]])
        if not line["ratios"]:
            rows.append([line["what"], ours, "", "", "", line["wanted"]])
    about = f"**{group['name']}** ({group['unit']}; {group['better']} is better). {group['about']}"
    return f"{about}\n\n{grid(('what', 'surreal_like', 'peer', '', 'ratio', 'wanted'), rows)}"


def summary(found: Mapping[str, Any], named: str = "") -> str:
    """Formats medians only: each quantity beside the best way of each peer.

    A ratio is bold where the peer is ahead.

    Args:
        found: one ``results/*.json``.
        named: part of the names of the groups to show; empty: all.
    """
    rows: list[list[str]] = []
    title = ""
    for group in found["groups"]:
        lines = list(_best_ways(group)) if named in group["name"] else []
        if lines and title != (title := _title(group)):
            rows.append([title, "", "", "", ""])
        rows += lines
    where = provenance(found["machine"], OF_RATES, found["peers"])
    head = ("what", "surreal_like", "peer", "", "ratio")
    return f"{grid(head, rows)}\n\n{where} {_rounds(found)}."


def _title(group: Mapping[str, Any]) -> str:
    """Formats name and unit, without an end of the name that each of its lines repeats."""
    name, lines = group["name"], group["lines"]
    ends = [name[at.end() :] for at in re.finditer(", ", name)]
    said = next((end for end in ends if all(end in line["what"] for line in lines)), None)
    name = name if said is None else name.removesuffix(f", {said}")
    less = ", less is better" if group["better"] == "less" else ""
    return f"**{name}**, {group['unit']}{less}"


def _best_ways(group: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yields a line for each quantity and peer: the way of the peer that is best for it."""
    sides, better = group["sides"], 1 if group["better"] == "more" else -1
    for line in group["lines"]:
        ways: dict[str, tuple[float, str]] = {}
        for key, ratio in line["ratios"].items():
            label = sides[key]["label"]
            if label not in OTHER_SETTINGS:
                way = (better * ratio["median"], key)
                name = label.partition(",")[0]
                ways[name] = min(ways.get(name, way), way)
        ours = [line["what"], _middle(sides[line["side"]])]
        for _, key in ways.values():
            ratio = line["ratios"][key]["median"]
            ahead = better * (ratio - 1) < 0
            value, shown = _bounded(sides[key], _middle(sides[key]), f"{_short(ratio)} x")
            yield [*ours, sides[key]["label"], value, f"**{shown}**" if ahead else shown]
            ours = ["", ""]


def _bounded(side: Mapping[str, Any], value: str, ratio: str) -> tuple[str, str]:
    """Formats value and ratio of a side as bounds where not each of its runs came to its end."""
    whole = not side["label"].endswith(" solved)")
    return (value, ratio) if whole else (f"at least {value}", f"at most {ratio}")


def _middle(side: Mapping[str, Any]) -> str:
    """Formats the median of a side."""
    return amount(side["value"]).partition(" (")[0]


def _rounds(found: Mapping[str, Any]) -> str:
    return f"Medians of {found['groups'][0]['rounds']} rounds"


def measured(found: Mapping[str, Any]) -> str:
    """Formats everything that a document shows of one ``results/*.json``."""
    text = provenance(found["machine"], OF_RATES, found["peers"])
    text += f" {_rounds(found)}, and from the least to the most."
    missing = [f"{peer} ({reason})" for peer, reason in found["left_out"].items()]
    text += f" Left out: {'; '.join(missing)}." if missing else ""
    text += steps_note(found)
    return f"{tables(found)}\n\n{text}"


def steps_note(found: Mapping[str, Any]) -> str:
    """Formats a sentence for environment steps that were counted otherwise than now; else empty."""
    lines = [line["what"] for group in found["groups"] for line in group["lines"]]
    old = "environment steps" in lines and found["machine"]["date"] < CHANGED
    note = f" Environment steps were measured before the change of {CHANGED} ({_WHAT_CHANGED})."
    return note if old else ""


# -- results of learning -------------------------------------------------------------------------


_LAST = "afterwards"


def learned_table(found: Mapping[str, Any]) -> str:
    """Formats one line for each experiment, and below the table the machine and the date."""
    rows = found["learned"]
    # Results of before have none.
    afterwards = [_LAST] if any("last_mean_return" in row for row in rows) else []
    head = ["experiment", "must reach", "reached", *afterwards]
    head += ["seconds", "environment steps"]
    runs = [run for row in rows for run in row["runs"]]
    where = learned_on(found["machine"], [run["seed"] for run in rows[0]["runs"]])
    lines = [_learned(row, afterwards=bool(afterwards)) for row in rows]
    return f"{grid(head, lines)}\n\n{where} {loads(runs)}"


def _goal(goal: float | Mapping[str, float]) -> str:
    """Formats a goal; of several policies ``left 400, right 400``."""
    if isinstance(goal, Mapping):
        return ", ".join(f"{policy} {each:g}" for policy, each in goal.items())
    return f"{goal:g}"


def _last(row: Mapping[str, Any]) -> str:
    """Formats the last evaluations, by policy where goals are: returns of opponents sum to 0."""
    if isinstance(row["goal"], Mapping):
        means = {name: [run["policies"][name] for run in row["runs"]] for name in row["goal"]}
        return ", ".join(f"{name} {span(spread(each), '.2f')}" for name, each in means.items())
    last = row.get("last_mean_return")
    return span(last, ".2f") if last else ""


def _learned(row: Mapping[str, Any], *, afterwards: bool) -> list[str]:
    fresh = [_last(row)] if afterwards else []
    cells = [_named(row, f"`{row['config']}.yaml`{row['name'].removeprefix(row['config'])}")]
    if row["below"] is not None:
        best = row["best_mean_return"]
        cells += [f"stays below {row['below']:g}", f"at best {best['max']:.2f}", *fresh]
        cells += ["", ""]
    else:
        bounds = row.get("at_most", {})
        wanted = [_goal(row["goal"])] if row["goal"] is not None else []
        reached = [f"{row['met']} of {len(row['runs'])}"] if wanted else []
        wanted += [f"{name} ≤ {bound:g}" for name, bound in bounds.items()]
        reached += [
            f"{name} at most {max(run[name] for run in row['runs']):.3g}" for name in bounds
        ]
        cells += ["; ".join(wanted), "; ".join(reached), *fresh]
        cells += [span(row["seconds"], ".1f"), span(row["env_steps"], ",.0f")]
    return cells


def milestones_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Formats one line for each row of milestones.py that has runs."""
    head = ("row", "must reach", "reached", "median of greedy returns", "seconds")
    return grid((*head, "environment steps"), map(_milestone, rows))


def _milestone(row: Mapping[str, Any]) -> list[str]:
    runs, goal = row["runs"], row["goal"]
    met = [run for run in runs if run["greedy_seconds"] is not None]
    last = [score for run in runs if (score := last_return(run)) is not None]
    if goal is None:
        cells = ["", plural(len(runs), "run"), span(last, ".1f"), "", ""]
    else:
        cells = [f"{goal:g}", f"{len(met)} of {len(runs)}", span(last, ".2f")]
        # Beside other work seconds say nothing.
        quiet = all(run["load_before"] <= QUIET and run["jobs"] == 1 for run in runs)
        cells += [span([run["greedy_seconds"] for run in met], ".0f") if quiet else ""]
        cells += [span([run["greedy_env_steps"] for run in met], ",.0f")]
    return [_named(row, f"`{row['name']}`"), *cells]


# Seeds from which on there is an interval; of fewer the scores stand there.
_ENOUGH = 5
# Student's t: 97.5 % of it lie below, by degrees of freedom.
_STUDENT = {4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}
_STUDENT |= {11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101}


def beside_peer(rows: Sequence[Mapping[str, Any]], peer: str) -> str:
    """Formats mean returns beside a peer's with the same settings; empty if there are none.

    Five seeds or more have Student's interval, and their ratio of means that of its logarithm
    (delta method, degrees of freedom of Welch and Satterthwaite); of fewer all scores stand there.
    """
    known = {
        row["name"]: [score for run in row["runs"] if (score := last_return(run)) is not None]
        for row in rows
    }
    lines = []
    for name, mine in known.items():
        theirs = known.get(f"{name}, {peer}")
        if mine and theirs:
            cells = [f"`{name}`", _scores_of(mine), _scores_of(theirs)]
            lines.append([*cells, _ratio_of_means(mine, theirs)])
    head = ("mean of greedy returns", "surreal_like", peer, "ratio of means")
    return grid(head, lines) if lines else ""


def _scores_of(scores: Sequence[float]) -> str:
    mean = statistics.mean(scores)
    if len(scores) < _ENOUGH:
        return f"{mean:,.0f} ({', '.join(f'{each:,.0f}' for each in sorted(scores))})"
    half = _STUDENT[len(scores) - 1] * statistics.stdev(scores) / math.sqrt(len(scores))
    return f"{mean:,.0f} ± {half:,.0f} ({min(scores):,.0f} to {max(scores):,.0f})"


def _ratio_of_means(mine: Sequence[float], theirs: Sequence[float]) -> str:
    ratio = statistics.mean(mine) / statistics.mean(theirs)
    if min(len(mine), len(theirs)) < _ENOUGH or ratio <= 0:
        return f"{ratio:.2f}"
    sides = (mine, theirs)
    errors = [(statistics.stdev(x) / statistics.mean(x)) ** 2 / len(x) for x in sides]
    # Welch and Satterthwaite; never rounded up.
    freedom = sum(errors) ** 2 / sum(
        error**2 / (len(x) - 1) for error, x in zip(errors, sides, strict=True)
    )
    factor = math.exp(_STUDENT[int(freedom)] * math.sqrt(sum(errors)))
    return f"{ratio:.2f} ({ratio / factor:.2f} to {ratio * factor:.2f})"


def last_return(run: Mapping[str, Any]) -> float | None:
    """Returns what the last parameters of a run reached; of runs of before, the last evaluation."""
    keys = ("judged_mean_return", "last_mean_return", "mean_return")
    return next((float(run[key]) for key in keys if run.get(key) is not None), None)


def samples_table(found: Mapping[str, Any]) -> str:
    """Formats one line for each algorithm: environment steps to the goal, ours and the peer's."""
    head: tuple[str, ...] = ("experiment", "learned from")
    for side in ("surreal_like", "stable-baselines3"):
        head += (side, "", _LAST)
    rows = []
    for row in found["samples"]:
        cells = [_named(row, f"`{row['config']}.yaml`"), row["uses"]]
        for side in (row["ours"], row["peer"]):
            cells += [f"{side['met']} of {len(side['runs'])}", span(side["env_steps"], ",.0f")]
            cells += [span([run["judged_mean_return"] for run in side["runs"]], ".1f")]
        rows.append([*cells, "" if row["ratio"] is None else f"{row['ratio']:.2f}"])
    seeds = [run["seed"] for run in found["samples"][0]["ours"]["runs"]]
    peer = f"stable-baselines3 {found['peers']['stable-baselines3']}"
    table = grid((*head, "ratio"), rows)
    return f"{table}\n\n{learned_on(found['machine'], seeds)} {peer}."


def gpu_table(found: Mapping[str, Any]) -> str:
    """Formats updates per second on a GPU, a line for each learner, and the whole run of Pong."""
    head = ("algorithm", "rows", "batch on the GPU", "batch from arrays", "bare loop", "ratio")
    rows = [
        [
            row["algorithm"],
            str(row["rows"]),
            *(f"{row[key]:.0f}" for key in ("ours", "fed", "bare")),
            f"{row['ours'] / row['bare']:.2f} x",
        ]
        for row in found["updates"]
    ]
    pong = found["pong"]
    text = (
        f"Pong by IMPALA, {pong['agents']} agents: {pong['env_steps_per_second']:,.0f} environment "
        f"steps (of four screens) and {pong['updates_per_second']:.0f} updates per second."
    )
    where = provenance(found["machine"], OF_RATES)
    return f"{grid(head, rows)}\n\n{text}\n\n{where} {found['device']}. One round."


def loads(runs: Sequence[Mapping[str, Any]]) -> str:
    """Formats the least and the largest load that the machine had before runs, as a sentence."""
    found = sorted({run["load_before"] for run in runs})
    text = " to ".join(f"{load:g}" for load in dict.fromkeys((found[0], found[-1])))
    return f"Load of the machine before a run: {text}."


def learned_on(machine: Mapping[str, Any], seeds: Sequence[int]) -> str:
    """Formats command, date, machine, versions and seeds in a few sentences."""
    text = f"Seeds {', '.join(map(str, seeds))}: medians, and from the least to the most."
    if len(seeds) == 1:
        text = f"Seed {seeds[0]}."
    return f"{provenance(machine, OF_LEARNING)} {text}"
