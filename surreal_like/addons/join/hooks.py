"""Functions of joining that the core calls: an endpoint of the parameter server, its service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from session.folder import RunFolder
    from session.process.context import Context
    from surreal_like.addons.join.admission_server import Host, JoinServer

_END = "ps.join"


def ps_ends(session_config: Any) -> tuple[str, ...]:
    """Returns the endpoint of requests to join; without keys it could not refuse strangers."""
    open_to_others = session_config.launcher.host and not session_config.security.insecure
    return (_END,) if open_to_others else ()


def make_service(context: Context) -> JoinServer | None:
    """Returns the service that admits other machines; None if the run is closed to them."""
    if _END not in context.component.binds:
        return None
    # Most runs are closed and need none of it in memory.
    from surreal_like.addons.join.admission_server import JoinServer

    return JoinServer(context)


def make_tuning_service(tuning: Host) -> tuple[JoinServer, str]:
    """Returns the service that admits workers of a tuning, and the command that one joins with."""
    from surreal_like.addons.join.admission_server import TUNE_ENDPOINT, JoinServer
    from surreal_like.addons.join.agents import join_line

    assert tuning.folder is not None  # a tuning has a folder
    return JoinServer(tuning, TUNE_ENDPOINT), join_line(tuning.folder) or ""


def admit_script(address: str, token: str, name: str) -> RunFolder:
    """Joins a run for the metrics and logs of a script; returns the folder of this machine."""
    from surreal_like.addons.join.admission_client import Invitation, request_admission

    return request_admission(Invitation(address, token, agents=0, clients=(name,))).folder


def invite(folder: RunFolder) -> list[str]:
    """Returns the command that joins agents of another machine, in lines; empty if none can."""
    from surreal_like.addons.join.agents import join_line

    line = join_line(folder)
    return [] if line is None else ["agents on another machine, once:", line]
