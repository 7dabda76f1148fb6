"""``surreal-like ray-run RUN``: runs a run as the job of a Ray cluster, and keeps agents joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from main.cli.arguments import Option, Parser
from session.addons.engines.machines import COMMAND
from session.addons.engines.processes import Child
from session.addons.ray.engine import connect
from session.errors import START_AGAIN, UsageError
from session.folder import RunFolder
from session.process.component import resources_of
from surreal_like.addons.submitted.core import run_core

_EXAMPLES = """The job that RUN/ray/submit.sh or RUN/ray/rayjob.yaml submits.

exit code: that of train; 75: it was asked to end and has saved, submit it again
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "ray-run",
        "Runs everything of a run but its agents, which join.",
        Option("run", help="folder of the run, as launch or plan --on ray has written it"),
        examples=_EXAMPLES,
    ).parse_args(argv)
    folder = RunFolder(Path(given.run).resolve())
    try:
        token = (folder.path / "ray" / "token").read_text().strip()
    except OSError as error:
        raise UsageError(
            f"{folder} was not written for Ray: surreal-like plan CONFIG --on ray --folder RUN"
        ) from error
    ray = connect("auto")
    host = str(ray.util.get_node_ip_address())
    ray.shutdown()
    try:
        with _agents(folder, token):
            return run_core(folder, host)
    except KeyboardInterrupt:
        return START_AGAIN


@contextmanager
def _agents(folder: RunFolder, token: str) -> Iterator[None]:
    """Keeps machines with one agent each joined, in a process that ends with this one."""
    session = folder.read_config().session_config
    needs = resources_of(session, "agent")
    command = [
        *(*COMMAND, "join", str(folder), "--keep-trying", "--on", "ray"),
        *("--machines", str(session.agent.num), "--cpu", f"{needs.cpu:g}"),
        *("--gpu", str(needs.gpu), "--folder", str(folder.path / "ray" / "agents")),
    ]
    child = Child(command, token)
    try:
        yield
    finally:
        child.terminate()
        child.wait()
