"""The keys of a run for a cluster: files for kustomize, or a Secret."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from session.config_file import read_file
from session.errors import UsageError
from session.launchers.kubernetes.settings import INSTANCE
from session.wire.security import KEY_FILES, write_keys

# kubectl shows this path when the keys are missing, so the path says what to do.
KEYS_FOLDER = "keys/run_surreal-like_keys_first"


def write_overlay_keys(overlay: Path) -> Path:
    """Makes the keys of an overlay unless it has some; returns their folder.

    Raises:
        UsageError: this is no overlay, or its keys cannot be written.
    """
    _kustomization(overlay)
    folder = overlay / KEYS_FOLDER
    write_keys(folder)
    return folder


def overlay_secret(overlay: Path) -> dict[str, Any]:
    """The Secret that ``apply -k`` would make of an overlay's keys.

    Raises:
        UsageError: this is no overlay, or it has no keys.
    """
    kustomization = _kustomization(overlay)
    prefix = str(kustomization.get("namePrefix", ""))
    namespace = kustomization.get("namespace")
    return make_secret(overlay / KEYS_FOLDER, prefix.removesuffix("-"), namespace)


def make_secret(folder: Path, name: str, namespace: str | None) -> dict[str, Any]:
    """The Secret of a run.

    Args:
        folder: of the keys.
        name: of the run.
        namespace: of its objects; None: that of the command that applies it.

    Raises:
        UsageError: a key is missing.
    """
    try:
        data = {each: base64.b64encode((folder / each).read_bytes()).decode() for each in KEY_FILES}
    except OSError as error:
        raise UsageError(
            f"cannot read the key {error.filename}: {error.strerror}; make keys with: "
            "surreal-like keys OVERLAY"
        ) from None
    labels = {INSTANCE: name}
    metadata: dict[str, Any] = {"name": f"{name}-keys", "labels": labels}
    if namespace is not None:
        metadata = {"name": f"{name}-keys", "namespace": str(namespace), "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "data": data,
    }


def _kustomization(overlay: Path) -> dict[Any, Any]:
    path = overlay / "kustomization.yaml"
    if not path.is_file():
        raise UsageError(
            f"{overlay} is no overlay: it has no kustomization.yaml; write one with: surreal-like "
            "plan CONFIG.yaml --on kubernetes --folder k8s/overlays/NAME"
        )
    return read_file(path)
