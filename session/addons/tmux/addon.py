"""Declares tmux as a launcher."""

from __future__ import annotations

from session.addons import AddOn, Launcher

_ROOM = "session.addons.tmux"
ADD_ON = AddOn(
    launchers=(
        Launcher(
            "tmux",
            cluster=f"{_ROOM}.run:TmuxCluster",
            control=f"{_ROOM}.run:TmuxRun",
            supervisor=f"{_ROOM}.run:TmuxSupervisor",
            check=f"{_ROOM}.session:require_tmux",
            attach=f"{_ROOM}.run:attach",
        ),
    ),
)
