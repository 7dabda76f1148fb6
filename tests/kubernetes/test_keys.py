"""``surreal-like keys``: files for kustomize, and the Secret."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from main.cli import main as surreal_like
from session.launchers.kubernetes.secret import KEYS_FOLDER
from session.wire.security import KEY_FILES, Security
from tests.kubernetes.test_manifests import copy_of_k8s


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
    secret = yaml.safe_load(capsys.readouterr().out)
    assert secret["metadata"]["name"] == "cartpole-keys"
    for name in KEY_FILES:
        kept = (overlay / KEYS_FOLDER / name).read_bytes()
        assert base64.b64decode(secret["data"][name]) == kept


def test_a_folder_that_is_no_overlay_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert surreal_like(["keys", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "no kustomization.yaml" in said
    assert len(said.splitlines()) == 1
    assert not list(tmp_path.iterdir())
