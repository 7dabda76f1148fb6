"""What a played container sees: a root directory of its own, read-only, with the pod's volumes.

In it is what the image would hold: this interpreter with its packages, the three packages of the
repository, and the system's programs and libraries. Nothing else of this machine is there, so a
file that is shared by accident is missed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[3]
_DEVICES = ("null", "zero", "full", "random", "urandom")
_SYSTEM = ("/usr", "/etc/alternatives", "/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/ssl")
_PACKAGES = ("session", "surreal_like", "main")
_LINKS = ("/bin", "/sbin", "/lib", "/lib64")


class Volume(NamedTuple):
    """One mount: a folder or file of this machine, and where the container sees it."""

    source: Path
    target: str
    writable: bool


def build_image(folder: Path) -> Path:
    """Copies the packages, so that what is edited meanwhile reaches no container."""
    for name in _PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
    return folder


def image_paths(image: Path) -> dict[Path, Path]:
    """What the image of the containers is made of: where it is there -> where it is here."""
    system = [Path(each) for each in _SYSTEM if os.path.exists(each)]
    interpreter = [Path(sys.base_prefix), Path(sys.prefix)]
    packages = {REPOSITORY / name: image / name for name in _PACKAGES}
    return {path: path for path in (*system, *interpreter)} | packages


def image_environment() -> dict[str, str]:
    """What the image sets."""
    programs = f"{sys.prefix}/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    return {"PATH": programs, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def volumes_of(container: Mapping[str, Any], sources: Mapping[str, Path]) -> list[Volume]:
    """The mounts of a container, outer ones first.

    Args:
        container: of a pod's spec.
        sources: name of each volume -> where it is on this machine.
    """
    found = [
        Volume(
            sources[mount["name"]] / mount.get("subPath", ""),
            mount["mountPath"],
            not mount.get("readOnly", False),
        )
        for mount in container["volumeMounts"]
    ]
    return sorted(found, key=lambda volume: volume.target.count("/"))


def mount_script(root: Path, volumes: Iterable[Volume], hosts: Path, image: Path) -> str:
    """Shell lines that make the root directory, inside a mount namespace of its own."""
    volumes = list(volumes)
    lines = ["set -e", f"mkdir -p {root}", f"mount -t tmpfs -o mode=755 none {root}", f"cd {root}"]
    hidden = []
    for target, source in image_paths(image).items():
        # A volume at /tmp would hide a repository below /tmp, which no image has there.
        below = any(target.is_relative_to(volume.target) for volume in volumes)
        bound = _bind(source, str(target), writable=False)
        lines += [] if below else bound
        hidden += bound if below else []
    for link in _LINKS:
        if os.path.islink(link):
            lines.append(f"ln -s {os.readlink(link)} .{link}")
        elif os.path.isdir(link):
            lines += _bind(Path(link), link, writable=False)
    lines += ["mkdir -p dev/shm proc run", "mount -t proc none proc"]
    lines += ["mount -t tmpfs -o mode=1777 none dev/shm"]
    for device in _DEVICES:
        lines += [f"touch dev/{device}", f"mount --bind /dev/{device} dev/{device}"]
    lines += _bind(hosts, "/etc/hosts", writable=False)
    for volume in volumes:
        lines += _bind(volume.source, volume.target, writable=volume.writable)
    lines += hidden
    return "\n".join([*lines, f"mount -o remount,bind,ro {root}", ""])


def _bind(source: Path, target: str, *, writable: bool) -> list[str]:
    place = shlex.quote(f".{target}")
    parent = shlex.quote(f".{os.path.dirname(target)}")
    make = f"mkdir -p {place}" if source.is_dir() else f"mkdir -p {parent}; touch {place}"
    options = "bind" if writable else "bind,ro"
    return [make, f"mount -o {options} {shlex.quote(str(source))} {place}"]
