"""Declares the environments of EnvPool."""

from __future__ import annotations

from session.addons import AddOn

ADD_ON = AddOn(environments={"envpool": "surreal_like.addons.envpool.kind:EnvPool"})
