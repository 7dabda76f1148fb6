"""The keys of a run for a cluster: files for kustomize, or Secrets, one for each role.

A pod of agents has only a key with the rights of agents, so that it cannot impersonate a server;
the same holds for evaluators and gateways.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from session.addons.hooks import TOKENS
from session.addons.kubernetes.settings import INSTANCE, TLS_FILES
from session.config.file import read_file
from session.errors import UsageError
from session.wire.roles import AGENT, EVALUATOR, GATEWAY, SHARED
from session.wire.security import KEY_FILES, make_keys, write_keys

# kubectl shows this path if the keys are missing, so the path names the command to run.
KEYS_FOLDER = "keys/run_surreal-like_keys_first"

_SERVER_SECRET = "keys"
# Of the tokens of clients, for gateways only.
CLIENTS_SECRET = "keys-clients"
_TOKENS = "clients"


def _of_role(role: str) -> Mapping[str, str]:
    """Returns file in the pods of a role -> file of the run's keys."""
    return {
        "server.pub": "server.pub",
        "client.pub": f"{role}.pub",
        "client.key": f"{role}.key",
    }


# Secret -> file in the pods -> file of the run's keys. Servers hold the public keys of the roles.
SECRETS: Mapping[str, Mapping[str, str]] = {
    _SERVER_SECRET: {name: name for name in (*KEY_FILES, *(f"{role}.pub" for role in SHARED))},
    f"keys-{AGENT}": _of_role(AGENT),
    f"keys-{EVALUATOR}": _of_role(EVALUATOR),
    f"keys-{GATEWAY}": _of_role(GATEWAY),
}


def secret_files(*, tls: bool) -> Mapping[str, Mapping[str, str]]:
    """Returns :data:`SECRETS`, with the certificate of gateways if they use TLS."""
    certificate = {name: name for name in TLS_FILES} if tls else {}
    own = f"keys-{GATEWAY}"
    return {**SECRETS, own: {**SECRETS[own], **certificate}}


def secret_of(kind: str) -> str:
    """Returns the name of the Secret that the pods of this kind of component mount."""
    return f"keys-{kind}" if kind in SHARED else _SERVER_SECRET


def cluster_keys() -> dict[str, str]:
    """Makes the keys of a run on a cluster: those of every run, and a pair for each role."""
    return make_keys(*SHARED)


def write_overlay_keys(overlay: Path) -> Path:
    """Makes the keys of an overlay unless it has keys already; returns their folder.

    Raises:
        UsageError: the folder is not an overlay, or its keys cannot be written.
    """
    _kustomization(overlay)
    folder = overlay / KEYS_FOLDER
    write_keys(folder, cluster_keys())
    return folder


def overlay_secrets(overlay: Path) -> list[dict[str, Any]]:
    """Returns the Secrets that ``apply -k`` would make from an overlay's keys.

    Raises:
        UsageError: the folder is not an overlay, or it has no keys.
    """
    kustomization = _kustomization(overlay)
    prefix = str(kustomization.get("namePrefix", ""))
    namespace = kustomization.get("namespace")
    generators = kustomization.get("secretGenerator") or [{}]
    options = generators[0].get("options") or {}
    added = {key: options[key] for key in ("labels", "annotations") if key in options}
    return make_secrets(overlay / KEYS_FOLDER, prefix.removesuffix("-"), namespace, added)


def make_secrets(
    folder: Path,
    name: str,
    namespace: str | None,
    added: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Returns the Secrets of a run; that of the tokens of clients once there was one.

    Args:
        folder: folder of the keys, of the certificate of gateways, and of the tokens.
        name: name of the run.
        namespace: namespace of its objects; None: that of the ``kubectl apply`` command.
        added: the ``labels`` and ``annotations`` that the user adds to all objects.

    Raises:
        UsageError: a key is missing.
    """
    placed: dict[str, Any] = {} if namespace is None else {"namespace": str(namespace)}
    placed["labels"] = {**added.get("labels", {}), INSTANCE: name}
    if added.get("annotations"):
        placed["annotations"] = dict(added["annotations"])
    every = dict(secret_files(tls=any((folder / each).exists() for each in TLS_FILES)))
    if (folder / _TOKENS).is_dir():
        names = [each.name for read in TOKENS for each in read(folder / _TOKENS)]
        every[CLIENTS_SECRET] = {each: f"{_TOKENS}/{each}" for each in names}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"{name}-{secret}", **placed},
            "type": "Opaque",
            "data": {each: _encode(folder / file) for each, file in files.items()},
        }
        for secret, files in every.items()
    ]


def _encode(path: Path) -> str:
    try:
        return base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise UsageError(
            f"cannot read the key {error.filename}: {error.strerror}; make keys with: "
            "surreal-like keys OVERLAY"
        ) from None


def _kustomization(overlay: Path) -> dict[Any, Any]:
    path = overlay / "kustomization.yaml"
    if not os.path.isfile(path):
        raise UsageError(
            f"{overlay} is no overlay: it has no kustomization.yaml; write one with: surreal-like "
            "plan CONFIG.yaml --on kubernetes --folder k8s/overlays/NAME"
        )
    return read_file(path)
