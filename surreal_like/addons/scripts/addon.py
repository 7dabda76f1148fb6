"""Declares what scripts use: runs and policies as objects, workers, senders, metrics and logs."""

from __future__ import annotations

from session.addons import AddOn

ADD_ON = AddOn(needs=("copies",))
