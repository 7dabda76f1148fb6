"""Declares what mirrors and tunings share: copies of a run's files."""

from __future__ import annotations

from session.addons import AddOn

ADD_ON = AddOn()
