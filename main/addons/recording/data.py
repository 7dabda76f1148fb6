"""``surreal-like data DIR``: what a recording holds; to another format, and from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from main.cli.arguments import Group, Option, Parser
from session.errors import UsageError
from session.loggerplex.terminal import printable
from session.show.text import columns, count, decimal, plural, size

if TYPE_CHECKING:
    from surreal_like.addons.recording.reader import Recording

_FORMATS = ("minari",)
_EXAMPLES = """examples:
  surreal-like data runs/cartpole_dqn
  surreal-like data demos --json
  surreal-like data demos --to minari datasets/cartpole-v0
  surreal-like data --from minari:datasets/cartpole-v0 demos

exit code: 0 whole; 1 a part is damaged, and was left out; 2 wrong command, or no recording
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "data",
        "Shows what a recording holds, and checks every byte of it; or converts it to another "
        "format of data, or from one.",
        Option(
            "folder",
            metavar="DIR",
            help="folder of a recorded run, of `record --out`, or of a RecordingWriter",
        ),
        Group(
            None,
            Option(
                "--to",
                nargs=2,
                metavar=("FORMAT", "PATH"),
                help="write its episodes in this format: minari, with a folder such as cartpole-v0",
            ),
            Option(
                "--from",
                dest="source",
                metavar="FORMAT:PATH",
                help="make DIR a new recording of a data set: minari:PATH",
            ),
        ),
        Option("--policy", metavar="NAME", help="which policy, where there are several"),
        Option("--json", action="store_true", help="the numbers as JSON, on one line"),
        examples=_EXAMPLES,
    ).parse_args(argv)
    if given.source is not None:
        _check_format(given.source.partition(":")[0])
        return _import(given)
    if given.to is not None:
        _check_format(given.to[0])

    from surreal_like.addons.recording.reader import Recording
    from surreal_like.addons.recording.summary import summarize

    recording = Recording(given.folder, given.policy)
    if given.to is not None:
        return _export(recording, given)
    found = summarize(recording)
    print(json.dumps(found) if given.json else _page(found))
    return 1 if found["damages"] else 0


def _check_format(name: str) -> None:
    if name not in _FORMATS:
        raise UsageError(f"no format '{name}'; there is {', '.join(_FORMATS)}")


def _import(given: Any) -> int:
    from surreal_like.addons.recording.minari import from_minari  # imports gymnasium
    from surreal_like.data.policy_names import DEFAULT_POLICY

    path = given.source.partition(":")[2]
    episodes = from_minari(path, given.folder, given.policy or DEFAULT_POLICY)
    _report(given, given.folder, episodes)
    return 0


def _export(recording: Recording, given: Any) -> int:
    from surreal_like.addons.recording.minari import to_minari  # imports gymnasium

    _report(given, given.to[1], to_minari(recording, given.to[1]))
    for damage in recording.damages:
        print(f"left out: {printable(str(damage))}", file=sys.stderr)
    return 1 if recording.damages else 0


def _report(given: Any, place: str, episodes: int) -> None:
    print(
        json.dumps({"episodes": episodes})
        if given.json
        else f"{place}: {plural(episodes, 'episode')}"
    )


def _page(found: Mapping[str, Any]) -> str:
    run, ends = found["run"], found["ends"]
    shards, senders = found["shards"], found["senders"]
    what = " in ".join(filter(None, (run["algorithm"], run["environment"])))
    names = ", ".join(filter(None, [what, f"policy {run['policy']}"]))
    rows = [
        ["run", f"{run['id']}: {names}"],
        [
            "rows",
            f"{count(found['rows'])}, one for each observation, in {size(found['bytes'])}, "
            f"{plural(len(shards), 'shard')}",
        ],
        ["episodes", f"{count(found['episodes'])} of {count(found['steps'])} steps{_ends(ends)}"],
    ]
    if found["late"]:
        rows.append(["late", f"{plural(found['late'], 'episode')} without its beginning"])
    for name in ("lengths", "returns"):
        if found[name]:
            least, low, middle, high, most = map(decimal, found[name])
            text = f"{least} to {most}, quartiles {low}, {middle}, {high}"
            mean = f", mean {decimal(found['mean_return'])}" if name == "returns" else ""
            rows.append([name, f"{text}{mean}; of complete episodes"])
    if found["versions"]:
        first, last = map(count, found["versions"])
        rows.append(["versions", f"{first} to {last} of the parameters"])
    rows.append(["senders", ", ".join(f"{name} {count(n)}" for name, n in senders.items())])
    for name, spec in found["specs"].items():
        rows.append([name.removesuffix("_spec"), json.dumps(spec)])
    ranges = ", ".join(
        f"{name} {decimal(least)} to {decimal(most)}"
        for name, (least, most) in found["ranges"].items()
    )
    rows.append(["ranges", ranges])
    if found["outside"]:
        places = ", ".join(f"{name} in {plural(n, 'row')}" for name, n in found["outside"].items())
        rows.append(["outside", f"{places}: beyond the bounds of the spec"])
    rows += [["left out", damage] for damage in found["damages"]]
    return columns([], rows)


def _ends(ends: Mapping[str, int]) -> str:
    found = ", ".join(f"{count(number)} {end}" for end, number in ends.items() if number)
    return f": {found}" if found else ""
