"""Fields that a user may add to the pods of a role, labels and annotations; and their types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from session.addons import acting_kinds
from session.config import Config
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from session.process.component import RESOURCES

EVERY_ROLE = "all"
# Fields of a pod's spec and metadata, and the variables of its containers -> type.
_FIELDS: Mapping[str, type] = {
    "affinity": dict,
    "annotations": dict,
    "env": dict,
    "imagePullSecrets": list,
    "labels": dict,
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
# Labels by which objects of the run find each other, or which describe them.
OUR_LABELS = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
    "app.kubernetes.io/version",
    "apps.kubernetes.io/pod-index",
    "statefulset.kubernetes.io/pod-name",
)
# Name of a label, behind its optional prefix, and its value.
_WORD = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def check_pods(config: Config) -> None:
    """Checks ``session_config.kubernetes.pods``; the cluster checks the values.

    Raises:
        ConfigError: there is no such role or field, or a field has the wrong type.
    """
    key = "session_config.kubernetes.pods"
    roles = (EVERY_ROLE, *RESOURCES, *acting_kinds())
    for role, fields in config.session_config.kubernetes.pods.items():
        _check_name(key, role, roles, "role")
        _check_shape(f"{key}.{role}", fields, dict)
        for name, value in fields.items():
            _check_name(f"{key}.{role}", name, _FIELDS, "field")
            _check_shape(f"{key}.{role}.{name}", value, _FIELDS[name])
        check_metadata(f"{key}.{role}", fields)
        for name in _OURS:
            if name in fields.get("env", {}):
                raise ConfigError(f"{key}.{role}.env.{name} is set by the run itself: leave it out")


def check_metadata(section: str, fields: Mapping[str, Any]) -> None:
    """Checks ``labels`` and ``annotations`` of a section.

    Raises:
        ConfigError: a label is one of the run's own, or Kubernetes would refuse a key or a value.
    """
    for key in ("labels", "annotations"):
        for name, value in (fields.get(key) or {}).items():
            where = f"{section}.{key} has {name!r}"
            if name in OUR_LABELS and key == "labels":
                raise ConfigError(f"{where}, which the run itself sets: choose another key")
            prefix, slash, word = name.rpartition("/")
            if not _WORD.fullmatch(word) or (slash and not _PREFIX.fullmatch(prefix)):
                raise ConfigError(
                    f"{where}: use letters, digits, '-', '_' and '.', at most 63 characters, and "
                    "before a '/' a domain name"
                )
            if key == "labels" and text(value) and not _WORD.fullmatch(text(value)):
                raise ConfigError(
                    f"{where}: {text(value)!r} is no value of a label: use letters, digits, '-', "
                    "'_' and '.', at most 63 characters; annotations hold any text"
                )


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Formats the values of a mapping as :func:`text`."""
    return {key: text(value) for key, value in values.items()}


def text(value: Any) -> str:
    """Formats a value as in YAML: ``true``, not ``True``."""
    return value if isinstance(value, str) else json.dumps(value)


def _check_name(key: str, name: str, known: Iterable[str], what: str) -> None:
    if name in (known := list(known)):
        return
    hint = did_you_mean(name, known, lead="; ")
    raise ConfigError(f"{key} has no {what} '{name}'; there are {', '.join(known)}{hint}")


def _check_shape(key: str, value: Any, shape: type) -> None:
    if not isinstance(value, shape):
        raise ConfigError(f"{key} is {value!r}, expected {_SHAPES[shape]}")
