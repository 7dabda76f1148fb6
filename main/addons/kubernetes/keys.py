"""``surreal-like keys OVERLAY``: makes the keys that a run on Kubernetes needs to start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from main.cli.arguments import Option, Parser
from session.addons.kubernetes.kustomize import dump_objects
from session.addons.kubernetes.secret import overlay_secrets, write_overlay_keys

_EXAMPLES = """examples:
  surreal-like keys k8s/overlays/cartpole
  surreal-like keys --secret k8s/overlays/cartpole | kubectl apply -f -

The first is for kubectl apply -k, which makes the Secrets of these files, the second for kubectl
apply -f. Keys that are there are kept; git ignores them.
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "keys",
        "Makes the keys with which the parts of a run on Kubernetes know each other.",
        Option("overlay", metavar="OVERLAY", help="such as k8s/overlays/cartpole"),
        Option(
            "--secret", action="store_true", help="print them as Secrets, for kubectl apply -f -"
        ),
        examples=_EXAMPLES,
    ).parse_args(argv)
    folder = write_overlay_keys(Path(given.overlay))
    if given.secret:
        print(dump_objects(overlay_secrets(Path(given.overlay))), end="")
    else:
        print(f"keys of {given.overlay}: {folder}")
    return 0
