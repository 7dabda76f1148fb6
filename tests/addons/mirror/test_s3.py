"""Copies on a real S3 server, which is killed, refuses, is full, and cuts connections."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from session.addons.mirror.fetch import fetch_run, list_runs
from session.errors import UsageError, WireError
from tests.addons.mirror.mirrored import contents, make_copier, make_run, save, save_best, shared
from tests.addons.mirror.s3_server import CREDENTIALS, FaultyProxy, S3Server

pytest.importorskip("s3fs", reason="needs the extra s3")
pytest.importorskip("moto", reason="needs the extra dev")
URL = "s3://bucket/prefix/run"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with S3Server(tmp_path / "moto.log") as found:
        yield found


@pytest.fixture
def proxy(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    with FaultyProxy(server.port) as found:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": found.url}.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.mark.slow
def test_a_run_on_s3_through_all_that_may_happen_to_it(
    server: S3Server, proxy: FaultyProxy, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run")
    copier = make_copier(run, URL)
    copier.copy(1.0)
    before = shared(run)
    for number, answer in enumerate((403, 503, 507, -1)):
        save(run, 300 + number, size=3 << 19)
        save_best(run, f"{number}".encode())
        proxy.answer = answer
        with pytest.raises(WireError, match="mirror s3://bucket/prefix/run: "):
            copier.copy(2.0)
        with pytest.raises(WireError):
            fetch_run(URL, tmp_path / f"away-{number}")
        assert not (tmp_path / f"away-{number}").exists()
        assert proxy.faults > 0
        proxy.answer = proxy.faults = 0
        # Nothing has changed for a reader, until the copy goes on.
        assert contents(fetch_run(URL, tmp_path / f"before-{number}")) == before
        copier.copy(3.0)
        before = shared(run)
        assert contents(fetch_run(URL, tmp_path / f"after-{number}")) == before
    server.kill()
    with pytest.raises(WireError):
        copier.copy(4.0)
    server.start()
    # It has nothing any more.
    with pytest.raises(UsageError, match="there is no run"):
        fetch_run(URL, tmp_path / "lost")
    copier.copy(5.0)
    assert contents(fetch_run(URL, tmp_path / "again")) == before
    assert [url for url, _, _ in list_runs("s3://bucket/prefix")] == [URL]
