"""Declares what hindsight and replays of sequences share: an index of the rows of episodes."""

from __future__ import annotations

from session.addons import AddOn

ADD_ON = AddOn()
