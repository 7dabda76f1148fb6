"""Settings of a policy that plays snapshots of another one."""

from __future__ import annotations

from session.config.key import FROM_1, SHARE, Key

SNAPSHOTS = {
    "snapshots_of": Key("_str_", "Policy whose snapshots play."),
    "every": Key(200, "Updates between two snapshots.", unit="updates", within=FROM_1),
    "keep": Key(10, "Snapshots that live: the first one and the newest.", within=FROM_1),
    "draw": Key(
        "uniform",
        "Draw of a snapshot: each with the same probability, or hard: those more often that the "
        "policy does not beat.",
        one_of=("uniform", "hard"),
    ),
    "latest_share": Key(
        0.5, "Share of draws that take the newest parameters in place of a snapshot.", within=SHARE
    ),
    "episodes": Key(20, "Episodes between two draws, of an agent process.", within=FROM_1),
}
