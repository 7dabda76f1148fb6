"""What TensorBoard's own reader finds in a folder of event files."""

from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from session.tensorplex.groups import place_of_title


def read(folder: Path) -> Any:
    """The reader of one folder, with everything loaded."""
    sizes = dict.fromkeys(("scalars", "images", "histograms", "tensors"), 0)
    return EventAccumulator(str(folder), size_guidance=sizes).Reload()


def scalars(folder: Path, tag: str) -> list[tuple[float, int, float]]:
    """(wall time, step, value) of each point of one curve."""
    return [(e.wall_time, e.step, e.value) for e in read(folder).Scalars(tag)]


def curves(root: Path) -> dict[str, list[str]]:
    """Component -> tags of its scalars."""
    found: dict[str, list[str]] = {}
    for title in sorted(read(root).Tags()["scalars"] if root.exists() else ()):
        place = place_of_title(title)
        found.setdefault(place.component, []).append(place.tag)
    return found
