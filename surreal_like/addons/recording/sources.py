"""The components that send recorded rows: a data set, and demonstrations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path

from session.config import Config
from session.process.component import Component
from surreal_like.policies.config import policy_configs

DATASET_KEY, DEMOS_KEY = "session_config.dataset.path", "learner_config.replay.demos.path"
# Stem of the names of demonstrations' senders.
DEMOS = "demos"
# Stem of the names of components -> key with the path of what they send.
SOURCES: Mapping[str, str] = {"data": DATASET_KEY, DEMOS: DEMOS_KEY}


def path_in(config: Config, key: str) -> str:
    """Returns the path that a policy's config has for a key of :data:`SOURCES`; empty: none."""
    return str(reduce(getitem, key.split("."), config))


def make_components(
    config: Config, shards: tuple[str, ...], shared: tuple[str, ...]
) -> Iterator[Component]:
    """Yields the senders of recordings, one for each replay shard of a policy.

    Args:
        config: resolved experiment.
        shards: ends of the replay shards.
        shared: ends to which every component connects.
    """
    configs = policy_configs(config).values()
    for stem, key in SOURCES.items():
        having = [own for own in configs if path_in(own, key)]
        parts = max((own.learner_config.replay.replay_shards for own in having), default=0)
        paths = ", ".join(str(Path(path_in(own, key)).absolute()) for own in having)
        for index in range(parts):
            yield Component(
                f"{stem}-{index}",
                "data",
                "main.data",
                index,
                connects=(*shards, *shared),
                sends=f"part {index} of {parts} of {paths}",
            )
