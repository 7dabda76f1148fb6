"""Declares pictures of tunings, for the command that draws runs."""

from __future__ import annotations

from session.addons import AddOn

ADD_ON = AddOn(
    hooks={"plot": "surreal_like.addons.tuning_plot.plot:plot_tuning"},
    needs=("analysis", "tuning"),
)
