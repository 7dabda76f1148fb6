"""``surreal-like export RUN``: writes a policy that runs without this package."""

from __future__ import annotations

import json
from collections.abc import Sequence

from main.cli.arguments import Parser
from main.cli.policy import (
    add_checkpoint,
    add_snapshot,
    follow_snapshot,
    suggesting_import_path,
)
from main.cli.runs import add_run, find_policy

_EXAMPLES = """examples:
  surreal-like export latest
  surreal-like export latest --format pt2 --out policy.pt2 --checkpoint latest

exit code: 0 written; 1 not written: its actions differ from those of the run; 2 wrong command
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("export", "Writes the greedy policy as ONNX or for PyTorch.", _EXAMPLES)
    add_run(parser)
    parser.add_argument("--out", metavar="FILE", help="default: policy.onnx, or policy.pt2")
    parser.add_argument("--format", default="onnx", metavar="onnx|pt2", help="default: onnx")
    add_checkpoint(parser)
    add_snapshot(parser)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    given = parser.parse_args(argv)
    folder = find_policy(given)
    follow_snapshot(given, folder, ["export", *argv])

    from surreal_like.addons.analysis.export import export  # imports torch

    with suggesting_import_path():
        found = export(
            folder.path,
            given.out,
            format=given.format,
            checkpoint=given.checkpoint,
            import_path=given.import_path,
        )
    if given.json:
        print(json.dumps({"path": str(found.path), "difference": found.difference}))
        return 0
    print(f"{found.path}: checkpoint {found.checkpoint} of {folder}")
    print(f"inputs {', '.join(found.inputs)}; outputs {', '.join(found.outputs)}")
    print(f"largest difference {found.difference:g} over {found.compared} random observations")
    return 0
