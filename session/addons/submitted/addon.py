"""Declares what Slurm and Ray share: runs whose core is one job."""

from __future__ import annotations

from session.addons import AddOn

ADD_ON = AddOn(files=("main/core.py",))
