"""Functions of the mirror that the core calls: its check and its component."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from session.addons.mirror.storage import check_url
from session.config import Config
from session.errors import UsageError
from session.process.component import Component


def check_mirror(config: Config, replay: type[Any], *, synchronous: bool, here: bool) -> None:
    """Refuses a mirror at a URL that this installation cannot write to; connects to nothing.

    Raises:
        ConfigError: it is no URL, or of an unknown scheme.
        MissingExtra: the package of its scheme is not installed.
    """
    if url := config.session_config.mirror:
        check_url(url, f"session_config.mirror is {url}")


def make_components(
    config: Config, shards: tuple[str, ...], shared: tuple[str, ...]
) -> Iterator[Component]:
    """Yields the mirror of a run that has one.

    Args:
        config: resolved experiment.
        shards: ends of the replay shards.
        shared: ends to which every component connects.
    """
    if config.session_config.mirror:
        yield Component("mirror", "mirror", "main.mirror", connects=shared)


def refuse_pods(session_config: Config, certificate: tuple[str, str]) -> None:
    """Refuses a mirror in a cluster, where no pod has all files of the run.

    Raises:
        UsageError: there is one.
    """
    if session_config.mirror:
        raise UsageError(
            "session_config.mirror copies the run folder of one machine; on Kubernetes the files "
            "of a run are on several volumes: leave it out, and take snapshots of the volumes"
        )
