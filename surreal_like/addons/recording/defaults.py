"""Settings of recordings: ``session_config.record`` and ``session_config.dataset``."""

from __future__ import annotations

from session.config.key import ABOVE_0, Idle, Key, section

DATASET = section(
    "Recorded rows that replay gets once, beside those of agents or, with agent.num 0, alone.",
    {
        "path": Key(
            "",
            "Folder of a recorded run, or of a recording: its rows are learned from, and count "
            'neither as steps nor as episodes; "": none.',
        ),
    },
)

RECORD = section(
    "Recording of the experience, in the folder recording of the run.",
    {
        "what": Key(
            "none",
            "What each replay shard writes down: none, or all chunks that it accepts.",
            one_of=("none", "all"),
        ),
        "gigabytes": Key(
            10.0,
            "Size of the recording, of all shards together; the oldest part makes room.",
            unit="GB",
            within=ABOVE_0,
            idle=Idle("what", ("none",)),
        ),
    },
)
