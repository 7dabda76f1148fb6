"""Advice to the user about a run on a cluster: before the launch, and while it idles."""

from __future__ import annotations

from collections.abc import Iterable

from session.config import Config

# To fetch an image of some gigabytes and to start pods takes minutes.
SHORT_SECONDS = 900


def warnings(config: Config) -> list[str]:
    """Returns likely mistakes of a config on a cluster, each in one line with its remedy."""
    session = config.session_config
    image: str = session.kubernetes.image
    seconds: float | None = session.stop.seconds
    lines = []
    if "/" not in image:
        lines.append(
            f"image {image} names no registry: load it into each node (kind load docker-image "
            f"{image}, minikube image load {image}), or push it and set "
            "session_config.kubernetes.image=REGISTRY/NAME:TAG"
        )
    port: int = session.tensorplex.prometheus_port
    if port and not session.kubernetes.metrics_from:
        lines.append(
            f"session_config.tensorplex.prometheus_port is {port}, on the loopback interface of "
            "its pod, where only kubectl port-forward reaches it; let Prometheus read it with "
            "session_config.kubernetes.metrics_from=[NAMESPACE]"
        )
    if seconds is not None and seconds < SHORT_SECONDS:
        lines.append(
            f"session_config.stop.seconds is {seconds:g}, and nodes that fetch the image and start "
            "pods use minutes of it: raise it, for example session_config.stop.seconds=3600"
        )
    return lines


def launch_advice(config: Config, components: Iterable[str]) -> list[str]:
    """Returns advice for the launch, in lines.

    Args:
        config: of the run.
        components: their names.
    """
    idle = [name for name in components if name != "learner"]
    return [*warnings(config), end_note(config, idle)]


def end_note(config: Config, components: Iterable[str]) -> str:
    """Describes the end of the pods after the run, as advice at the launch.

    Args:
        config: of the run.
        components: names of those that idle after the end.
    """
    ttl_seconds: int | None = config.session_config.kubernetes.ttl_seconds
    if ttl_seconds is not None:
        return (
            f"all objects but the volumes are removed {ttl_seconds} s after the end of the run "
            "(session_config.kubernetes.ttl_seconds; null: they stay); status copies result.json "
            "to this machine until then"
        )
    return (
        f"after the end of the run its pods idle and keep {_cores(config, components)} reserved "
        "until surreal-like stop; session_config.kubernetes.ttl_seconds=3600 removes them an hour "
        "after the end"
    )


def idle_note(config: Config, components: Iterable[str]) -> str:
    """Describes what a run that is over still reserves, with the remedy; empty if nothing.

    Args:
        config: of the run.
        components: names of those that still have pods.
    """
    names = list(components)
    if not names:
        return ""
    ttl_seconds: int | None = config.session_config.kubernetes.ttl_seconds
    until = f", at most {ttl_seconds} s after the end" if ttl_seconds is not None else ""
    return (
        f"the run is over; {len(names)} components idle and keep {_cores(config, names)} "
        f"reserved{until}; remove them: surreal-like stop"
    )


def _cores(config: Config, components: Iterable[str]) -> str:
    resources = config.session_config.resources
    kinds = (_kind(name) for name in components)
    number = sum(resources[kind].cpu for kind in kinds if kind in resources)
    return f"{number:g} cores"


def _kind(component: str) -> str:
    """Returns the key of ``session_config.resources`` for a component's name."""
    stem, _, number = component.rpartition("-")
    kind = stem if number.isdigit() else component
    return "evaluator" if kind == "eval" else kind
