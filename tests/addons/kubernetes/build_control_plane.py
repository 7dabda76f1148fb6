"""Builds the control plane of Kubernetes from Debian's sources; nothing is installed.

    python -m tests.addons.kubernetes.build_control_plane

There is no binary of a control plane in a registry. Debian 12 has the source of 1.20.2 with all
that it needs, and a Go that compiles it: four minutes of processor time, once. The programs are
kept in ``~/.cache/surreal-like``, or in the folder that SURREAL_LIKE_CACHE names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.addons.kubernetes.old_server import VERSION

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
_PACKAGES = ("golang-1.19-go", "golang-1.19-src", "etcd-server")
_NEEDED = ("apt-get", "dpkg-deb", "dpkg-source")
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_DEBIAN = f"[signed-by={_KEYRING}] http://deb.debian.org/debian bookworm main"
_MARK = "+k8s:openapi-gen=true"
_OPENAPI = "k8s.io/kubernetes/pkg/generated/openapi"


def programs_folder() -> Path:
    """Returns the folder of the programs of this version, whether they are built or not."""
    cache = os.environ.get("SURREAL_LIKE_CACHE") or Path.home() / ".cache" / "surreal-like"
    return Path(cache) / f"kubernetes-{VERSION}"


def find_programs() -> bool:
    """Returns True if all programs are built."""
    return all((programs_folder() / name).is_file() for name in PROGRAMS)


def main() -> int:
    """Builds what is missing; returns the exit code."""
    if find_programs():
        return 0
    gone = [name for name in _NEEDED if shutil.which(name) is None]
    if gone or not Path(_KEYRING).is_file():
        sys.stderr.write(
            f"cannot build a control plane: missing {', '.join(gone) or _KEYRING} (Debian's "
            "apt, dpkg-dev, debian-archive-keyring); or set KUBECONFIG to a cluster of yours\n"
        )
        return 2
    sys.stdout.write(f"builds {programs_folder()}, about four minutes of processor time\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="sl-build-") as folder:
        _build(Path(folder))
    return 0


def _build(folder: Path) -> None:
    _fetch(folder)
    for package in folder.glob("*.deb"):
        _run(folder, "dpkg-deb", "-x", package.name, "debian")
    source = folder / "go" / "src" / "k8s.io" / "kubernetes"
    source.parent.mkdir(parents=True)
    (description,) = folder.glob("*.dsc")
    _run(folder, "dpkg-source", "--no-check", "-x", description.name, str(source))
    made = folder / "made"
    made.mkdir()
    _compile(source, folder, made)
    shutil.copy2(folder / "debian" / "usr" / "bin" / "etcd", made)
    kept = programs_folder()
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(kept, ignore_errors=True)
    shutil.move(made, kept)


def _fetch(folder: Path) -> None:
    """Downloads through an apt of its own, whose lists and sources lie in the folder."""
    (folder / "apt" / "lists" / "partial").mkdir(parents=True)
    (folder / "apt" / "sources").write_text(f"deb {_DEBIAN}\ndeb-src {_DEBIAN}\n")
    options = {
        "Dir::Etc::SourceList": folder / "apt" / "sources",
        "Dir::Etc::SourceParts": "-",
        "Dir::State::lists": folder / "apt" / "lists",
        "Dir::Cache": folder / "apt",
        # The folder is private, and the user _apt may not write to it.
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items())]
    _run(folder, *apt, "update")
    _run(folder, *apt, "download", *_PACKAGES)
    _run(folder, *apt, "source", "--download-only", "kubernetes")


def _compile(source: Path, folder: Path, made: Path) -> None:
    go = folder / "debian" / "usr" / "lib" / "go-1.19"
    variables = {
        **os.environ,
        "GOROOT": str(go),
        "GOPATH": str(folder / "go"),
        "GOCACHE": str(folder / "compiled"),
        "GOFLAGS": "",
        "GO111MODULE": "off",
        "CGO_ENABLED": "0",
    }
    build = (str(go / "bin" / "go"), "build", "-o")
    generator = str(folder / "openapi-gen")
    _run(source, *build, generator, "./vendor/k8s.io/kube-openapi/cmd/openapi-gen", env=variables)
    # The one generated file that the source package lacks.
    _run(
        source,
        *(generator, "--go-header-file", "hack/boilerplate/boilerplate.generatego.txt"),
        *("--input-dirs", ",".join(_marked_packages(source))),
        *("--output-package", _OPENAPI, "-O", "zz_generated.openapi"),
        *("--report-filename", str(folder / "violations")),
        env=variables,
    )
    commands = [f"./cmd/{name}" for name in PROGRAMS if name.startswith("kube-")]
    # Without it the server calls itself v0.0.0.
    version = f"-s -w -X k8s.io/component-base/version.gitVersion=v{VERSION}"
    options = ("-tags", "providerless", "-ldflags", version)
    _run(source, *build, str(made), *options, *commands, env=variables)


def _marked_packages(source: Path) -> list[str]:
    """Returns the import paths of the packages that ask for a description of their types."""
    found = set()
    for top, prefix in (("staging/src", ""), ("vendor", ""), ("pkg", "k8s.io/kubernetes/pkg/")):
        for path in (source / top).rglob("*.go"):
            if not path.name.endswith("_test.go") and _MARK in path.read_text(errors="replace"):
                found.add(f"{prefix}{path.parent.relative_to(source / top)}")
    return sorted(found)


def _run(folder: Path, *command: str, env: dict[str, str] | None = None) -> None:
    subprocess.run(["nice", "-n", "19", *command], cwd=folder, env=env, check=True)


if __name__ == "__main__":
    raise SystemExit(main())
