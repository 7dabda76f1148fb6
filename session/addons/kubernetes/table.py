"""The table of components, from the state of their pods in the cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from session.launchers.status import ComponentStatus
from session.process.heartbeat import State

_NUMBERED = ("agent", "eval", "gateway", "machine", "replay")
_PART = "app.kubernetes.io/component"

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Container:
    """One container of one pod, which is one component.

    Args:
        component: name of the component.
        name: name of the container.
        pod: name of the pod.
        ending: the pod is being ended.
        status: status that the cluster reports, empty before the first report.
        made: creation time of the pod, as a sortable text.
        reason: why the pod has no node, or why it was taken from its node; empty: neither.
    """

    component: str
    name: str
    pod: str
    ending: bool
    status: Data
    made: str
    reason: str = ""

    @property
    def running(self) -> bool:
        """True while its process lives."""
        return "running" in self.status.get("state", {})

    @property
    def end(self) -> Data:
        """Newest end of its process, empty before the first."""
        states = (self.status.get(key) or {} for key in ("state", "lastState"))
        return next((each["terminated"] for each in states if "terminated" in each), {})


def _is_numbered(part: str) -> bool:
    """Returns True for a part of which there are several; shards of a policy have its name, too."""
    return part.partition("-")[0] in _NUMBERED


def containers_of(pods: Data, run: str) -> dict[str, Container]:
    """Returns component -> its container, the newest one if a pod is being replaced.

    Args:
        pods: a list, as ``kubectl get pods`` returns it.
        run: name of the run.
    """
    every = [each for pod in pods["items"] for each in _containers(pod, run)]
    return {each.component: each for each in sorted(every, key=lambda each: each.made)}


def _containers(pod: Data, run: str) -> Iterator[Container]:
    metadata = pod["metadata"]
    part = metadata.get("labels", {}).get(_PART, "")
    statuses = {each["name"]: each for each in pod.get("status", {}).get("containerStatuses", [])}
    for container in pod["spec"]["containers"]:
        name = container["name"]
        numbered = metadata["name"].removeprefix(f"{run}-") if _is_numbered(part) else name
        yield Container(
            component=numbered,
            name=name,
            pod=metadata["name"],
            ending="deletionTimestamp" in metadata,
            status=statuses.get(name, {}),
            made=metadata.get("creationTimestamp", ""),
            reason=_pod_reason(pod.get("status", {})),
        )


def _pod_reason(status: Data) -> str:
    """Returns the reason in a pod's status, such as ``Evicted: The node was low on memory``."""
    waits = (each for each in status.get("conditions") or () if each["type"] == "PodScheduled")
    named = status if "reason" in status else next(waits, {"status": "True"})
    return "" if named.get("status") == "True" else _join_words(named)


def _join_words(data: Data) -> str:
    return ": ".join(str(data[key]) for key in ("reason", "message") if data.get(key))


def row_of(container: Container, reported: Data) -> ComponentStatus:
    """Builds the row of a component.

    Args:
        container: state in the cluster.
        reported: status in Tensorplex, empty without one.
    """
    state, doing, exit_code = _state(container)
    age_seconds = reported.get("age_seconds")
    return ComponentStatus(
        name=container.component,
        state=state,
        pid=0,
        age_seconds=float(age_seconds) if age_seconds is not None else None,
        restarts=int(container.status.get("restartCount", 0)),
        exit_code=exit_code,
        doing=doing,
        died=describe_end(container.status.get("lastState", {}).get("terminated") or {}),
        died_seconds=_death_seconds(container),
    )


def _state(container: Container) -> tuple[State, str, int | None]:
    """Returns state, description and exit code."""
    status = container.status
    state: Data = status.get("state", {})
    if "terminated" in state:
        ended = state["terminated"]
        code = int(ended.get("exitCode", 0))
        return State.gone, str(ended.get("message") or ""), code
    if container.ending:
        return State.draining, "its pod is being ended", None
    if "running" not in state:
        words = _join_words(state.get("waiting", {})) or container.reason
        return State.waiting, words or "for a node", None
    if status.get("ready"):
        return State.running, "", None
    if status.get("started"):
        return State.running, "not ready", None
    return State.starting, "", None


def describe_end(ended: Data) -> str:
    """Describes the end of a process, empty if that was clean, or if there was none."""
    if not ended or ended.get("exitCode") == 0:
        return ""
    return f"{ended.get('reason') or 'Error'}, exit code {ended.get('exitCode')}"


def _death_seconds(container: Container) -> float | None:
    """Returns the seconds since then, as far as the two clocks agree; None if unknown."""
    before = container.status.get("lastState", {}).get("terminated") or {}
    try:
        ended = datetime.fromisoformat(before["finishedAt"])
    except (KeyError, TypeError, ValueError):
        return None
    return max(0.0, time.time() - ended.timestamp())
