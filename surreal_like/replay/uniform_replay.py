"""The table that samples rows uniformly, or by age."""

from __future__ import annotations

from surreal_like.replay.age_selector import AgeRule, AgeSelector
from surreal_like.replay.selector import Selector, UniformSelector
from surreal_like.replay.table import Table


class UniformReplay(Table):
    """Uniform sampling with replacement from the newest rows, as n-step transitions.

    ``learner_config.replay.age`` makes old rows less likely, or leaves them out, see
    :class:`AgeSelector`.
    """

    def make_selector(self, capacity: int, seed: int) -> Selector:
        """Makes a uniform selector, or one by age where the config has a rule for it."""
        rule = AgeRule.of(self.learner_config["replay"])
        if not rule.matters:
            return UniformSelector(capacity, seed=seed)
        return AgeSelector(
            capacity,
            rule,
            versions=self.versions,
            newest_version=lambda: self.newest_version,
            seed=seed,
        )
