"""Declares random shifts of images: a part of plans."""

from __future__ import annotations

from session.addons import AddOn

ADD_ON = AddOn(
    parts={"random_shifts": "surreal_like.addons.augment.shifts:add_random_shifts"},
    elsewhere={"drq": "sac with learner_config.parts=[{part: random_shifts}]"},
)
