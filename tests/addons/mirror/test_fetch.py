"""What is fetched from a mirror is checked byte by byte, and damage is named."""

import json
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from session.addons.mirror import storage
from session.addons.mirror.fetch import fetch_run, list_runs
from session.addons.mirror.storage import Storage, check_url
from session.checkpoint import seal, unseal
from session.errors import CheckpointError, ConfigError, MissingExtra, UsageError
from tests.addons.mirror.mirrored import contents, make_copier, make_run, save, shared


class Mirror:
    """A mirror of a run in a folder.

    Args:
        path: for the run and its mirror.
    """

    def __init__(self, path: Path) -> None:
        self.run = make_run(path / "run")
        self.url = f"file://{path}/bucket/run"
        self.place = path / "bucket" / "run"
        self.copier = make_copier(self.run, self.url)
        self.copier.copy(1.0)

    @property
    def manifest(self) -> dict[str, Any]:
        return unseal((self.place / "manifest.json").read_bytes(), "manifest")

    def write(self, content: Mapping[str, Any]) -> None:
        (self.place / "manifest.json").write_text(seal(content))


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path)


NAME = "checkpoints/learner/200/params"


def test_one_wrong_bit_is_named(mirror: Mirror, tmp_path: Path) -> None:
    (block,) = mirror.manifest["files"][NAME]["blocks"]
    path = mirror.place / "blocks" / block
    data = bytearray(path.read_bytes())
    data[3] ^= 4
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{NAME} was changed after it was copied"):
        fetch_run(mirror.url, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert not list(tmp_path.glob(".*"))


def test_a_missing_block_is_named(mirror: Mirror, tmp_path: Path) -> None:
    (block,) = mirror.manifest["files"][NAME]["blocks"]
    (mirror.place / "blocks" / block).unlink()
    with pytest.raises(CheckpointError, match=f"a block of {NAME} is missing"):
        fetch_run(mirror.url, tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("changed", ["bytes", "blake2b", "blocks"])
def test_a_file_that_is_not_that_of_the_manifest_is_named(
    changed: str, mirror: Mirror, tmp_path: Path
) -> None:
    content = mirror.manifest
    other = content["files"]["config.yaml"]
    content["files"][NAME][changed] = other[changed]
    mirror.write(content)
    with pytest.raises(CheckpointError, match=f"{NAME} has not its checksum"):
        fetch_run(mirror.url, tmp_path / "back")


def test_a_generation_that_is_replaced_while_it_is_read_is_read_anew(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, calls = Storage.get, []

    def slow(self: Storage, name: str) -> bytes | None:
        calls.append(name)
        if len(calls) in (2, 10):
            save(mirror.run, 300 + len(calls))
            mirror.copier.copy(2.0)
        return get(self, name)

    monkeypatch.setattr(Storage, "get", slow)
    assert contents(fetch_run(mirror.url, tmp_path / "back")) == shared(mirror.run)
    assert len(calls) > 15


@pytest.mark.parametrize("name", ["../outside", "/outside", "checkpoints/../../outside", ""])
def test_a_manifest_writes_nothing_outside_of_the_folder(
    name: str, mirror: Mirror, tmp_path: Path
) -> None:
    content = mirror.manifest
    content["files"][name] = content["files"].pop(NAME)
    mirror.write(content)
    with pytest.raises(CheckpointError, match="names a file outside"):
        fetch_run(mirror.url, tmp_path / "below" / "back")
    assert not list(tmp_path.rglob("outside*"))


@pytest.mark.parametrize(
    ("field", "value"),
    [("run", 5), ("part", -1), ("files", []), ("files", {"a": {"bytes": 1}}), ("time", "now")],
)
def test_a_manifest_of_another_form_is_damaged(
    field: str, value: object, mirror: Mirror, tmp_path: Path
) -> None:
    mirror.write({**mirror.manifest, field: value})
    with pytest.raises(CheckpointError, match=r"manifest\.json is damaged"):
        fetch_run(mirror.url, tmp_path / "back")


def test_a_changed_manifest_is_damaged(mirror: Mirror, tmp_path: Path) -> None:
    path = mirror.place / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "time": 7.0}))
    with pytest.raises(CheckpointError, match=r"manifest\.json was changed"):
        fetch_run(mirror.url, tmp_path / "back")


def test_a_folder_with_something_in_it_is_left_alone(mirror: Mirror, tmp_path: Path) -> None:
    before = contents(mirror.run.path)
    with pytest.raises(UsageError, match="is not empty"):
        fetch_run(mirror.url, mirror.run.path)
    assert contents(mirror.run.path) == before
    (tmp_path / "empty").mkdir()
    assert contents(fetch_run(mirror.url, tmp_path / "empty")) == shared(mirror.run)


def test_a_place_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no run at"):
        fetch_run(f"file://{tmp_path}/none", tmp_path / "back")
    assert list(list_runs(f"file://{tmp_path}/none")) == []


def test_runs_below_a_url(mirror: Mirror, tmp_path: Path) -> None:
    make_copier(make_run(tmp_path / "two"), f"file://{tmp_path}/bucket/tuning/trial-0").copy(2.0)
    found = [
        (url.rpartition("bucket/")[2], time, sorted(contents(run.path)))
        for url, time, run in list_runs(f"file://{tmp_path}/bucket")
    ]
    facts = ["config.yaml", "result.json"]
    assert found == [("run", 1.0, facts), ("tuning/trial-0", 2.0, facts)]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("bucket/prefix", "expected a URL"),
        ("s3://", "expected a URL"),
        ("s4://bucket", "there is no file system 's4'"),
    ],
)
def test_a_wrong_url_is_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_url(url, f"session_config.mirror is {url}")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import_module("fsspec.registry")

    def missing(scheme: str) -> None:
        raise ImportError(f"install a package for {scheme}")

    monkeypatch.setattr(sys.modules["fsspec.registry"], "get_filesystem_class", missing)
    with pytest.raises(MissingExtra, match=r"surreal-like\[s3\]|\.\[s3\]"):
        check_url("s3://bucket/prefix", "session_config.mirror is s3://bucket/prefix")
    with pytest.raises(MissingExtra, match="install a package for gs"):
        check_url("gs://bucket/prefix", "session_config.mirror is gs://bucket/prefix")
    assert storage._EXTRAS.keys() == {"s3", "s3a"}
