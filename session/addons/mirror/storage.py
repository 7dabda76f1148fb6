"""Files of one run on object storage: blocks under their checksums, and a manifest.

```
<url>/blocks/<checksum>     at most 1 MiB of a file, never rewritten
<url>/manifest.json         sealed: name -> size, checksum and blocks of every file
```

Equal blocks are stored once, and of a file that grows only the last block is stored anew. The
manifest is replaced as a whole, after all of its blocks are there: a reader sees one generation or
the next, never a part.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from session.addons.copies.run_files import StoredFile
from session.checkpoint import seal, unseal
from session.did_you_mean import did_you_mean
from session.errors import CheckpointError, ConfigError, MissingExtra, UsageError, WireError
from session.hidden import hide_secrets
from session.json_file import COUNT, NUMBER, TEXT, MapOf, fault

MANIFEST = "manifest.json"
_BLOCKS = "blocks"
_SHAPE = {
    "run": TEXT,
    "part": COUNT,
    "incarnation": COUNT,
    "time": NUMBER,
    "files": MapOf({"bytes": COUNT, "blake2b": TEXT, "blocks": [TEXT]}),
}
# A server that does not answer is asked again by the mirror itself, later.
_S3 = {
    "use_listings_cache": False,
    "config_kwargs": {"connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 1}},
}
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "file": {"auto_mkdir": True},
    "s3": _S3,
    "s3a": _S3,
}
# Scheme -> extra that has its package.
_EXTRAS = {"s3": "s3", "s3a": "s3"}


@dataclass(frozen=True, slots=True)
class Manifest:
    """One complete generation of a run's files.

    Args:
        run: identity of the run.
        part: number of the part of the run, see :func:`session.process.context.run_part`.
        incarnation: incarnation of the mirror that wrote it.
        time: wall clock when it was written [s].
        files: path in the run folder -> file.
    """

    run: str
    part: int
    incarnation: int
    time: float
    files: Mapping[str, StoredFile]

    @property
    def blocks(self) -> set[str]:
        """Names of all blocks of its files."""
        return {block for file in self.files.values() for block in file.blocks}


def check_url(url: str, complaint: str) -> None:
    """Refuses a URL that no file system of this installation can open; connects to nothing.

    Args:
        url: the URL.
        complaint: begin of the message.

    Raises:
        ConfigError: it is no URL, of an unknown scheme, or has a secret.
        MissingExtra: the package of its scheme is not installed.
    """
    if (hidden := hide_secrets(url)) != url:
        raise ConfigError(
            f"{complaint.replace(url, hidden)}: a secret in it would stand in files and logs of "
            "the run: give it as the storage does without, such as by AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or a credentials file"
        )
    from fsspec.registry import available_protocols, get_filesystem_class

    scheme, _, path = url.partition("://")
    if not scheme or not path.strip("/"):
        raise ConfigError(f"{complaint}, expected a URL such as s3://bucket/prefix")
    try:
        get_filesystem_class(scheme)
    except ValueError:
        hint = did_you_mean(scheme, available_protocols(), otherwise="such as s3://bucket/prefix")
        raise ConfigError(f"{complaint}: there is no file system '{scheme}'; {hint}") from None
    except ImportError as error:
        if scheme in _EXTRAS:
            raise MissingExtra.named(complaint, _EXTRAS[scheme]) from None
        raise MissingExtra(f"{complaint}: {error}") from None


class Storage:
    """The place of one run, or of several below it, on object storage.

    Requests block, for at most about half a minute; a listing is never cached.

    Args:
        url: URL of a folder.

    Raises:
        ConfigError, MissingExtra: as :func:`check_url`.
    """

    def __init__(self, url: str) -> None:
        check_url(url, f"mirror {url}")
        # Imported late: the package is large, and that of S3 is an extra.
        from fsspec.core import url_to_fs

        self.url = url.rstrip("/")
        scheme = url.partition("://")[0]
        with self._answering():
            self._files, path = url_to_fs(
                self.url, skip_instance_cache=True, **_OPTIONS.get(scheme, {})
            )
        self._path = path.rstrip("/")
        self._files.retries = 1

    def read_manifest(self) -> Manifest | None:
        """Returns the newest complete generation; None if there is none.

        Raises:
            WireError: the storage does not answer, or refuses.
            CheckpointError: the manifest is damaged.
        """
        with self._answering():
            try:
                found = self._files.cat_file(self._at(MANIFEST))
            except FileNotFoundError:
                return None
        return _parse(found, f"{self.url}/{MANIFEST}")

    def publish(self, manifest: Manifest) -> None:
        """Replaces the manifest.

        Raises:
            WireError: the storage does not answer, or refuses.
        """
        # Written beside and moved: not every file system replaces a file at once.
        new = self._at(f"{MANIFEST}.new")
        with self._answering():
            self._files.pipe_file(new, seal(asdict(manifest)).encode())
            self._files.mv(new, self._at(MANIFEST))

    def put(self, name: str, data: bytes) -> None:
        """Stores a block under its checksum.

        Raises:
            WireError: the storage does not answer, or refuses.
        """
        with self._answering():
            self._files.pipe_file(self._at(_BLOCKS, name), data)

    def get(self, name: str) -> bytes | None:
        """Returns a block, unverified; None if it is not there.

        Raises:
            WireError: the storage does not answer, or refuses.
        """
        with self._answering():
            try:
                return bytes(self._files.cat_file(self._at(_BLOCKS, name)))
            except FileNotFoundError:
                return None

    def list_blocks(self) -> set[str]:
        """Returns the names of all blocks, those of no generation included.

        Raises:
            WireError: the storage does not answer, or refuses.
        """
        return set(self._list(_BLOCKS))

    def remove(self, blocks: Iterable[str]) -> None:
        """Removes blocks; one that is gone is no error.

        Raises:
            WireError: the storage does not answer, or refuses.
        """
        paths = [self._at(_BLOCKS, name) for name in blocks]
        if paths:
            with self._answering(), suppress(FileNotFoundError):
                self._files.rm(paths)

    def below(self) -> list[str]:
        """Returns the URLs of the folders directly below.

        Raises:
            WireError: the storage does not answer, or refuses.
        """
        return [f"{self.url}/{name}" for name in sorted(self._list()) if name != _BLOCKS]

    def _list(self, *below: str) -> Iterator[str]:
        path = self._at(*below)
        with self._answering():
            self._files.invalidate_cache()
            try:
                found = self._files.ls(path, detail=False)
            except FileNotFoundError:
                found = []
        for each in found:
            yield posixpath.basename(each.rstrip("/"))

    def _at(self, *below: str) -> str:
        return "/".join((self._path, *below))

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turns every error of the package, and of the network behind it, into one kind."""
        try:
            yield
        except Exception as error:
            words = " ".join(str(error).split()) or type(error).__name__
            raise WireError(f"mirror {self.url}: {words}") from error


def _parse(found: bytes, where: str) -> Manifest:
    """Reads a manifest, which comes from the network.

    Raises:
        CheckpointError: it is damaged, or names a file outside of a run folder.
    """
    content = unseal(found, where)
    if wrong := fault(content, _SHAPE):
        raise CheckpointError(f"{where} is damaged: {wrong}")
    for name in content["files"]:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise CheckpointError(f"{where} names a file outside of a run folder: {name!r}")
    files = {name: StoredFile.load(each) for name, each in content["files"].items()}
    return Manifest(**{**content, "files": files})


def refuse_missing(url: str) -> UsageError:
    """Returns the error for a URL without a run."""
    return UsageError(
        f"there is no run at {url}: it has no {MANIFEST}; surreal-like list URL shows the runs "
        "below a URL"
    )
