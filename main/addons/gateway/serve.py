"""``surreal-like serve RUN``: clients act with the parameters of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from main.cli.arguments import (
    IMPORT_PATH,
    RUN,
    STOCHASTIC,
    TRAINED,
    Option,
    Parser,
    suggesting_import_path,
)
from main.cli.runs import find_policy

_EXAMPLES = """examples:
  surreal-like serve latest
  surreal-like serve cartpole_dqn --trained
  surreal-like serve latest --checkpoint latest --follow --port 7200
  surreal-like serve mine session_config.gateway.origins=[https://example.org]

The settings of the port are those of the run: session_config.gateway. Ctrl-C ends it.
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "serve",
        "Lets clients act with a trained policy.",
        RUN,
        Option(
            "settings",
            nargs="*",
            metavar="session_config.gateway.key=value",
            help="settings of the port that replace those of the run",
        ),
        Option(
            "--checkpoint",
            metavar="best|latest|STEP",
            help="which parameters to serve; STEP is an iteration that was saved; default: best, "
            "or without --follow latest if only the untrained policy was evaluated",
        ),
        Option("--follow", action="store_true", help="load newer checkpoints of the same kind"),
        Option("--host", metavar="HOST", help="address to listen on"),
        Option("--port", type=int, metavar="PORT", help="TCP port; 0: any free one"),
        STOCHASTIC,
        Option("--max-clients", type=int, metavar="N", help="sessions at the same time"),
        TRAINED,
        IMPORT_PATH,
        examples=_EXAMPLES,
    ).parse_args(argv)
    if given.follow and given.checkpoint is None:
        # The policy of the start, too: better ones follow.
        given.checkpoint = "best"
    folder = find_policy(given)
    settings = [
        f"session_config.gateway.{name}={value}"
        for name in ("host", "port", "max_clients")
        if (value := getattr(given, name)) is not None
    ]

    from surreal_like.addons.gateway.checkpoint_server import Server  # imports torch
    from surreal_like.run.observer import Interrupts

    with Interrupts() as interrupts, suggesting_import_path():
        server = Server(
            folder,
            given.checkpoint,
            follow=given.follow,
            stochastic=given.stochastic,
            settings=[*given.settings, *settings],
            import_path=given.import_path,
            say=lambda line: print(line, flush=True),
        )
        interrupts.only_count()
        try:
            while not interrupts.count:
                server.tick()
        finally:
            server.close()
    return 0
