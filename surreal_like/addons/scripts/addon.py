"""Declares what scripts use beside runs: policies as objects, workers, metrics and logs."""

from __future__ import annotations

from session.addons import AddOn

ADD_ON = AddOn()
