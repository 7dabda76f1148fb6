"""Settings of recordings: ``session_config.record`` and ``session_config.dataset``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.addons import load
from session.config import Config
from session.config.key import ABOVE_0, FROM_1, SHARE, Idle, Key, section
from session.config.learner_defaults import SCHEDULE_KEYS
from session.errors import ConfigError

FLIGHT = section(
    "Journal of what the learner learns from, with which surreal-like rerun repeats its updates.",
    {
        "keep": Key(
            "none",
            "none, or all batches, for which record.what must be all.",
            one_of=("none", "all"),
        ),
        "hash_every": Key(
            1000,
            "Updates between two hashes of all parameters and optimizers.",
            unit="updates",
            within=FROM_1,
            idle=Idle("keep", ("none",)),
        ),
    },
)
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
            "Size of the segments of all shards and learners together; the oldest part makes room.",
            unit="GB",
            within=ABOVE_0,
            idle=Idle("what", ("none",)),
        ),
    },
)

DEMOS = section(
    "Demonstrations: recorded rows that replay keeps beside the others, in UniformReplay and "
    "PrioritizedReplay, and draws for a share of each batch.",
    {
        "path": Key("", 'Folder of a recorded run, or of a recording; "": none.'),
        "proportion": section(
            "Schedule of their share of the rows of each batch.",
            Config(SCHEDULE_KEYS) | {"kind": "constant", "start": 0.5, "end": 0.0},
            within=SHARE,
            idle=Idle("path", ("",)),
        ),
        "capacity": Key(
            100_000,
            "Most rows of demonstrations, over all shards; a larger recording is refused.",
            unit="rows",
            within=FROM_1,
            idle=Idle("path", ("",)),
        ),
    },
)


def choose_replay(learner_config: Mapping[str, Any], kind: type[Any]) -> Any:
    """Returns a kind of replay with demonstrations, None if there are none.

    Raises:
        ConfigError: this replay gives no transitions.
    """
    path = (learner_config["replay"].get("demos") or {}).get("path")
    if not path:
        return None
    # Only now: without demonstrations no process imports it.
    table = load("surreal_like.replay.table:Table")
    if not issubclass(kind, table) or kind.gives() != "rows":
        raise ConfigError(
            f"learner_config.replay.demos.path is {path}, but {kind.__name__} gives no "
            "transitions: take UniformReplay or PrioritizedReplay"
        )
    return load("surreal_like.addons.recording.demos:with_demos")(kind)
