"""``surreal-like data DIR``: what a recording holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from main.cli.arguments import Option, Parser
from session.show.text import columns, count, decimal, plural, size

_EXAMPLES = """examples:
  surreal-like data runs/cartpole_dqn
  surreal-like data demos --json

exit code: 0 whole; 1 a part is damaged, and was left out; 2 wrong command, or no recording
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "data",
        "Shows what a recording holds, and checks every byte of it.",
        Option("folder", metavar="DIR", help="folder of a recorded run, or of `record --out`"),
        Option("--policy", metavar="NAME", help="which policy, where there are several"),
        Option("--json", action="store_true", help="the numbers as JSON, on one line"),
        examples=_EXAMPLES,
    ).parse_args(argv)

    from surreal_like.addons.recording.reader import Recording
    from surreal_like.addons.recording.summary import summarize

    recording = Recording(given.folder, given.policy)
    found = summarize(recording)
    print(json.dumps(found) if given.json else _page(found))
    return 1 if found["damages"] else 0


def _page(found: Mapping[str, Any]) -> str:
    run, ends = found["run"], found["ends"]
    shards, senders = found["shards"], found["senders"]
    rows = [
        ["run", f"{run['id']}: {run['algorithm']} in {run['environment']}, policy {run['policy']}"],
        [
            "rows",
            f"{count(found['rows'])} in {size(found['bytes'])}, {plural(len(shards), 'shard')}",
        ],
        ["episodes", f"{count(found['episodes'])} of {count(found['steps'])} steps{_ends(ends)}"],
    ]
    if found["late"]:
        rows.append(["late", f"{plural(found['late'], 'episode')} without its beginning"])
    if found["returns"]:
        least, low, middle, high, most = map(decimal, found["returns"])
        text = f"{least} to {most}, quartiles {low}, {middle}, {high}; of complete episodes"
        rows.append(["returns", text])
    if found["versions"]:
        first, last = map(count, found["versions"])
        rows.append(["versions", f"{first} to {last} of the parameters"])
    rows.append(["senders", ", ".join(f"{name} {count(n)}" for name, n in senders.items())])
    for name, spec in found["specs"].items():
        rows.append([name.removesuffix("_spec"), json.dumps(spec)])
    rows += [["left out", damage] for damage in found["damages"]]
    return columns([], rows)


def _ends(ends: Mapping[str, int]) -> str:
    found = ", ".join(f"{count(number)} {end}" for end, number in ends.items() if number)
    return f": {found}" if found else ""
