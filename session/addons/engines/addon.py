"""Declares engines of machines, and the one that starts processes here."""

from __future__ import annotations

from session.addons import AddOn

ADD_ON = AddOn(engines={"processes": "session.addons.engines.processes:ProcessMachines"})
