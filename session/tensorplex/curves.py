"""Reads scalars from event files: the available tags, and the points of one tag."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from session.show.progress import Curve
from session.tensorplex.groups import INDEXED_GROUPS

_BIN = re.compile(r"/\d+(-\d+)?$")


class EventCurves:
    """The scalars below a folder of event files.

    A tag of an indexed group is found with and without the bin at its end, because the bin only
    groups curves into charts.

    Args:
        root: ``tensorboard/`` of a run.
    """

    def __init__(self, root: Path) -> None:
        self._readers = dict(_readers(root))

    def tags(self) -> dict[str, list[str]]:
        """Returns tag without its bin -> folders below the root that contain it."""
        found: dict[str, list[str]] = {}
        for folder, reader in self._readers.items():
            for tag in reader.Tags()["scalars"]:
                found.setdefault(_bare(folder, tag), []).append(folder)
        return dict(sorted(found.items()))

    def curves(self, tag: str) -> dict[str, Curve]:
        """Returns folder -> points of one tag over the step, including those of all restarts."""
        found = {}
        for folder, reader in self._readers.items():
            for each in reader.Tags()["scalars"]:
                if tag in (each, _bare(folder, each)):
                    # The later of two points at one step replaces the earlier.
                    points = {point.step: point.value for point in reader.Scalars(each)}
                    steps = sorted(points)
                    found[folder] = Curve(
                        [float(step) for step in steps], [float(points[step]) for step in steps]
                    )
        return found


def _readers(root: Path) -> Iterator[tuple[str, Any]]:
    # Imported here because it is slow.
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folders = sorted({path.parent for path in root.rglob("events.out.tfevents.*")})
    keep = {"scalars": 0, "tensors": 1, "images": 1, "histograms": 1}
    for folder in folders:
        reader = EventAccumulator(str(folder), size_guidance=keep)
        yield folder.relative_to(root).as_posix(), reader.Reload()


def _bare(folder: str, tag: str) -> str:
    return _BIN.sub("", tag) if folder.partition("/")[0] in INDEXED_GROUPS else tag
