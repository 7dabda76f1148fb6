"""``surreal-like keys``: files for kustomize, and the Secret."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from main.cli import main as surreal_like
from session.addons.kubernetes.secret import KEYS_FOLDER, SECRETS, secret_of
from session.wire.roles import EVERYTHING, SHARED
from session.wire.security import KEY_FILES, Security
from tests.addons.kubernetes.test_manifests import copy_of_k8s


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    return copy_of_k8s(tmp_path) / "overlays" / "cartpole"


def test_keys_are_private_files(overlay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert surreal_like(["keys", str(overlay)]) == 0
    folder = overlay / KEYS_FOLDER
    assert str(folder) in capsys.readouterr().out
    for name in KEY_FILES:
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    assert Security.load(folder)


def test_keys_that_are_there_are_kept(overlay: Path) -> None:
    surreal_like(["keys", str(overlay)])
    before = (overlay / KEYS_FOLDER / "server.key").read_text()
    assert surreal_like(["keys", str(overlay)]) == 0
    assert (overlay / KEYS_FOLDER / "server.key").read_text() == before


def test_the_secret_holds_the_same_keys(overlay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert surreal_like(["keys", "--secret", str(overlay)]) == 0
    secrets = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [each["metadata"]["name"] for each in secrets] == [
        f"cartpole-{each}" for each in SECRETS
    ]
    for secret, files in zip(secrets, SECRETS.values(), strict=True):
        for name, file in files.items():
            kept = (overlay / KEYS_FOLDER / file).read_bytes()
            assert base64.b64decode(secret["data"][name]) == kept


def test_what_a_pod_mounts_gives_it_its_role_and_no_more(overlay: Path, tmp_path: Path) -> None:
    surreal_like(["keys", str(overlay)])
    pods = {}
    for secret, files in SECRETS.items():
        pods[secret] = tmp_path / secret
        pods[secret].mkdir()
        for name, file in files.items():
            (pods[secret] / name).write_bytes((overlay / KEYS_FOLDER / file).read_bytes())
    servers = Security.load(pods["keys"])
    for kind in SHARED:
        mounted = Security.load(pods[secret_of(kind)])
        assert not mounted.server_secret
        assert servers.grant(mounted.client_public) == SHARED[kind]
    assert servers.grant(servers.client_public) == EVERYTHING
    assert secret_of("learner") == secret_of("replay") == "keys"


def test_a_folder_that_is_no_overlay_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert surreal_like(["keys", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "no kustomization.yaml" in said
    assert len(said.splitlines()) == 1
    assert not list(tmp_path.iterdir())
