"""``surreal-like rerun RUN``: repeats the updates of a recorded run, and compares them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from main.cli.arguments import IMPORT_PATH, RUN, Option, Parser, suggesting_import_path
from main.cli.runs import find_run
from session.loggerplex.terminal import printable
from session.show.text import columns, count, plural

if TYPE_CHECKING:
    from surreal_like.addons.recording.other_code import Comparison, Difference
    from surreal_like.addons.recording.rerun import Rerun

_EXAMPLES = """examples:
  surreal-like rerun latest
  surreal-like rerun runs/cartpole_dqn --from 10000 --until 20000
  surreal-like rerun latest --code ../branch

exit code: 0 all updates are equal; 1 one differs, or could not be repeated; 2 wrong command
"""


# Tensors that differ, on the page.
_SHOWN = 10


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "rerun",
        "Repeats the updates of a run that was recorded with session_config.record.what=all and "
        "session_config.flight.keep=all. It reads files only.",
        RUN,
        Option("--policy", metavar="NAME", help="which policy, where there are several"),
        Option(
            "--from",
            type=int,
            dest="begin",
            metavar="N",
            help="begin at the newest state that is kept up to update N; default: the first",
        ),
        Option(
            "--code",
            metavar="DIR",
            help="repeat with this code and with that of another checkout, and find the first "
            "update at which they learn something else",
        ),
        Option("--trace", nargs=2, metavar=("DIR", "N"), help=argparse.SUPPRESS),
        Option("--until", type=int, metavar="N", help="last update; default: all"),
        IMPORT_PATH,
        Option("--json", action="store_true", help="the outcome as JSON, on one line"),
        examples=_EXAMPLES,
    ).parse_args(argv)
    folder = find_run(given.run)

    from surreal_like.addons.recording import other_code  # imports torch
    from surreal_like.addons.recording.rerun import Repeater

    def report(line: object) -> None:
        if not given.json:
            print(printable(str(line)))

    part = {"begin": given.begin, "until": given.until}
    with suggesting_import_path():
        folder.find_modules(given.import_path)
        if given.trace is not None:
            place, after = given.trace
            other_code.trace(folder, Path(place), policy=given.policy, after=int(after), **part)
            return 0
        if given.code is not None:
            comparer = other_code.Comparer(
                folder, Path(given.code), given.policy, given.import_path
            )
            compared = comparer.compare(**part)
            print(json.dumps(asdict(compared)) if given.json else _page(compared, given.code))
            return 0 if compared.equal else 1
        found = Repeater(folder, given.policy).run(report=report, **part)
    print(json.dumps(asdict(found)) if given.json else _line(found))
    return 0 if found.updates and not (found.differs or found.problems) else 1


def _page(found: Comparison, code: str) -> str:
    lines = []
    for name, each in (("this code", found.here), (code, found.there)):
        lines += [f"{name}: {printable(problem)}" for problem in each.problems]
        if each.differs is not None:
            lines.append(f"{name} and the run: {_difference(each.differs)}")
            if found.update is not None and found.update < each.differs[1]:
                lines.append("  (the journal has marks of some parameters of each optimizer only)")
    if found.update is None:
        same = f"{_line(found.here, proven=False)}; all tensors compared at the end"
        return "\n".join([*lines, f"{code} learns the same: {same}"])
    lines.append(f"{code} learns something else from update {count(found.update)} on")
    differing, tensors = count(len(found.differences)), plural(found.tensors, "tensor")
    lines.append(
        f"{differing} of {tensors} differ after it, the largest relative difference first:"
    )
    rows = [[f"  {each.name}", *_amounts(each)] for each in found.differences[:_SHOWN]]
    lines += columns([], rows).splitlines()
    if more := found.differences[_SHOWN:]:
        lines.append(f"  and {count(len(more))} more: --json has all")
    return "\n".join(lines)


def _amounts(found: Difference) -> list[str]:
    if found.largest is None or found.size is None:
        return ["has another shape, or is not finite", ""]
    return [f"by {found.largest:.3g}", f"of at most {found.size:.3g}"]


def _difference(differs: tuple[int, int]) -> str:
    first, last = differs
    if last == first + 1:
        return f"the first difference is at update {count(last)}"
    return f"the first difference is at one of the updates {count(first + 1)} to {count(last)}"


def _line(found: Rerun, *, proven: bool = True) -> str:
    if proven and found.differs is not None:
        return _difference(found.differs)
    updates = plural(found.updates, "update")
    text = f"{updates} equal"
    if found.first:
        text = f"{updates} equal, from {count(found.first + 1)} to {count(found.last)}"
    if found.starts > 1:
        text += f", in {found.starts} parts: some are repeated after a kill or a gap"
    if not proven:
        return text
    text += f"; {plural(found.compared, 'whole state')} compared"
    if found.proven < found.last:
        text += f"; the journal has nothing to compare after update {count(found.proven)}"
    return text
