"""Settings of a curriculum, in ``env_config``."""

from __future__ import annotations

from session.config.key import Key

CURRICULUM = Key(
    None,
    "Function (progress, task) -> task, file.py:name or module:name, that sets the task of "
    "the episodes that begin from then on; None keeps it.",
    optional="_str_",
)
EVAL_TASK = Key({}, "Task of all episodes of evaluations; empty: the newest task.")
