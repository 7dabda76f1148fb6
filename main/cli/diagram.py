"""``plan --format mermaid``: processes and the sockets between them; the learner's dataflow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from session.process.component import Component, Topology

if TYPE_CHECKING:
    from surreal_like.dataflow.flow import Flow

# All components connect to these: one separate box, as its arrows would hide the others.
_TELEMETRY = ("tensorplex", "loggerplex")
# In the order of the data flow; other kinds follow.
_ORDER = ("agent", "replay", "learner", "ps", "evaluator")
# Endpoint -> label of its arrow, and True if the arrow points to the component that binds it.
_ENDS = {
    "experience": ("experience: chunks", True),
    "acks": ("acks", False),
    "batches": ("batches", False),
    "priorities": ("priorities", True),
    "parameters": ("parameters: published", False),
    "requests": ("requests: parameters, polled", False),
    "control": ("control: scores", True),
}


def mermaid(topology: Topology) -> str:
    """Returns the diagram as Mermaid text, which GitHub and many editors draw.

    Components of one kind are one box. Arrows show the direction of the data.

    Args:
        topology: topology of the run.
    """
    groups = [list(members) for _, members in groupby(topology, key=lambda each: each.kind)]
    drawn = [group for group in groups if group[0].kind not in _TELEMETRY]
    drawn.sort(key=lambda group: _ORDER.index(group[0].kind) if group[0].kind in _ORDER else 99)
    lines = ["flowchart LR"]
    lines += [f'    {group[0].kind}["{_names(group)}"]' for group in drawn]
    lines += _arrows(drawn)
    telemetry = [group[0].name for group in groups if group[0].kind in _TELEMETRY]
    lines.append(f'    all(["all components"]) -. "metrics, logs" .-> {_box(telemetry)}')
    return "\n".join(lines)


def dataflow(flow: Flow) -> Iterator[str]:
    """Yields the lines of a box with one node per operator of a learner's plan."""
    numbers = {id(part): number for number, part in enumerate(flow.parts(), 1)}
    yield '    subgraph dataflow["dataflow of the learner"]'
    for part in flow.parts():
        name = part.name.replace('"', "'")
        yield f'        operator{numbers[id(part)]}["{name}"]'
    for part in flow.parts():
        for source in part.inputs:
            yield f"        operator{numbers[id(source)]} --> operator{numbers[id(part)]}"
    yield "    end"


def _names(group: Sequence[Component]) -> str:
    first, last = group[0].name, group[-1].name
    return first if first == last else f"{first} … {last}" if len(group) > 2 else f"{first}, {last}"


def _arrows(groups: Sequence[Sequence[Component]]) -> Iterator[str]:
    """Yields one arrow per pair of boxes and direction; labels of the same arrow are joined."""
    owners = {end: group[0].kind for group in groups for one in group for end in one.binds}
    arrows: dict[tuple[str, str], list[str]] = {}
    for group in groups:
        for end in group[0].connects:
            owner = owners.get(end)
            if owner is None or _is_hello(group[0].kind, end):
                continue
            label, towards_owner = _ENDS[end.rpartition(".")[2]]
            way = (group[0].kind, owner) if towards_owner else (owner, group[0].kind)
            texts = arrows.setdefault(way, [])
            if label not in texts:
                texts.append(label)
    for (source, target), texts in arrows.items():
        yield f'    {source} -- "{", ".join(texts)}" --> {target}'


def _is_hello(kind: str, end: str) -> bool:
    """Returns True for a mere handshake: only agents and evaluators fetch parameters there."""
    return end == "ps.requests" and kind not in ("agent", "evaluator")


def _box(names: Sequence[str]) -> str:
    return f'telemetry["{", ".join(names)}"]'
