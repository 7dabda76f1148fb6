"""Fields that a user may add to the pods of a role, and their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from session.config import Config
from session.did_you_mean import did_you_mean
from session.errors import ConfigError

EVERY_ROLE = "all"
# Fields of a pod's spec and metadata, and the variables of its containers -> type.
_FIELDS: Mapping[str, type] = {
    "affinity": dict,
    "annotations": dict,
    "env": dict,
    "imagePullSecrets": list,
    "nodeSelector": dict,
    "priorityClassName": str,
    "runtimeClassName": str,
    "serviceAccountName": str,
    "tolerations": list,
    "topologySpreadConstraints": list,
}
_SHAPES: Mapping[type, str] = {dict: "a mapping", list: "a list", str: "a text"}
# Variables of the run itself, used in the arguments of components.
_OURS = ("POD_IP", "POD_INDEX")


def check_pods(config: Config) -> None:
    """Checks ``session_config.kubernetes.pods``; the cluster checks the values.

    Raises:
        ConfigError: there is no such role or field, or a field has the wrong type.
    """
    key = "session_config.kubernetes.pods"
    roles = (EVERY_ROLE, *config.session_config.resources)
    for role, fields in config.session_config.kubernetes.pods.items():
        _check_name(key, role, roles, "role")
        _check_shape(f"{key}.{role}", fields, dict)
        for name, value in fields.items():
            _check_name(f"{key}.{role}", name, _FIELDS, "field")
            _check_shape(f"{key}.{role}.{name}", value, _FIELDS[name])
        for name in _OURS:
            if name in fields.get("env", {}):
                raise ConfigError(f"{key}.{role}.env.{name} is set by the run itself: leave it out")


def _check_name(key: str, name: str, known: Iterable[str], what: str) -> None:
    if name in (known := list(known)):
        return
    hint = did_you_mean(name, known, lead="; ")
    raise ConfigError(f"{key} has no {what} '{name}'; there are {', '.join(known)}{hint}")


def _check_shape(key: str, value: Any, shape: type) -> None:
    if not isinstance(value, shape):
        raise ConfigError(f"{key} is {value!r}, expected {_SHAPES[shape]}")
