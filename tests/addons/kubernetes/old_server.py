"""What API server 1.20 does not know of the objects of a run: one list.

Objects are written for 1.28 and newer, and checked by schema for these. Where a test gives them to
the real, but old, API server, their text is edited on the way.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

VERSION = "1.20.2"
# Expressions of sed. kubectl refuses fields and kinds that the server does not describe.
_EDITS = (
    # Of a Job, 1.29. The stand-in for the kubelet does what it asks for.
    "/^ *podReplacementPolicy: /d",
    "s|^apiVersion: policy/v1$|apiVersion: policy/v1beta1|",  # PodDisruptionBudget, 1.21
    "s|^apiVersion: autoscaling/v2$|apiVersion: autoscaling/v2beta2|",  # 1.23
)
# A label of the pods of a StatefulSet, 1.28. The stand-in for the kubelet reads the name instead.
POD_INDEX = "apps.kubernetes.io/pod-index"

_SED = ("sed", *(word for edit in _EDITS for word in ("-e", edit)))
_KUBECTL = """#!/bin/sh
case " $* " in
*" -f - "*|*" --filename=- "*) {sed} | {kubectl} "$@" ;;
*) exec {kubectl} "$@" ;;
esac
"""


def edit_files(folder: Path) -> None:
    """Edits all manifests below a folder."""
    subprocess.run([*_SED, "--in-place", *map(str, folder.rglob("*.yaml"))], check=True)


def write_kubectl(path: Path, kubectl: str) -> None:
    """Writes a program that edits the objects that kubectl reads from its standard input."""
    path.write_text(_KUBECTL.format(sed=shlex.join(_SED), kubectl=shlex.quote(kubectl)))
    path.chmod(0o755)
