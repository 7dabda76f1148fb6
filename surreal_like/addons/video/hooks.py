"""Functions of videos that the core calls; without videos they import no package of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from session.config import Config
from session.process.context import Context

if TYPE_CHECKING:
    from surreal_like.addons.video.film import Film


def check_videos(config: Config, replay: type[Any], *, synchronous: bool, here: bool) -> None:
    """Raises MissingExtra if evaluations are filmed here, and the package that does so is not."""
    from surreal_like.addons.video.video import check_writer

    if here and config.session_config.evaluator.video.every:
        check_writer()


def make_film(context: Context) -> Film | None:
    """Returns what films the evaluations of ``eval-0`` of a run with a folder; else None."""
    every = context.config.session_config.evaluator.video.every
    if not every or context.component.index or context.folder is None:
        return None
    from surreal_like.addons.video.film import Film

    return Film(context)
