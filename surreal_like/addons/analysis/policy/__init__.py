"""Policies as objects of a script or a notebook, and what collects experience with them."""

from surreal_like.addons.analysis.policy.policy import Policy, load_policy, make_policy

__all__ = ["Policy", "load_policy", "make_policy"]
