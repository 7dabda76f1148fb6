"""Declares videos: films of evaluations, with their settings."""

from __future__ import annotations

from session.addons import AddOn
from session.config.key import FROM_0, FROM_1, Key, section

_ROOM = "surreal_like.addons.video"
VIDEO = section(
    "Videos of what eval-0 plays, in videos/ of the run folder (extra video).",
    {
        "every": Key(
            0,
            "Number of evaluations from one video to the next; 0: no videos.",
            unit="evaluations",
            within=FROM_0,
        ),
        "episodes": Key(
            1,
            "Length of a video: the first episodes of the evaluation.",
            unit="episodes",
            within=FROM_1,
        ),
    },
)
ADD_ON = AddOn(
    keys={"session_config.evaluator.video": f"{_ROOM}.addon:VIDEO"},
    hooks={
        "check": f"{_ROOM}.hooks:check_videos",
        "film": f"{_ROOM}.hooks:make_film",
    },
)
