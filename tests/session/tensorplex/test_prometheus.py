"""The newest values as Prometheus text over HTTP."""

import math
import re
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from session.config import Config
from session.errors import UsageError
from session.tensorplex.prometheus import Page, Samples, exposition, metrics_host
from tests.add_ons import needs

ROOT = Path(__file__).resolve().parents[3]
ROW = {
    "name": "agent-0",
    "state": "running",
    "age_seconds": 0.5,
    "rss_bytes": 7,
    "restarts": 2,
    "status": {},
}
OF_RUN = {
    "run_over": 0.0,
    "env_steps_total": 40.0,
    "updates_total": 3.0,
    "rows_dropped_total": 0.0,
    "learner_waiting_ratio": 0.25,
    "senders_waiting_ratio": 0.5,
    "lag_versions": 1.5,
    "replay_fill_ratio": 0.75,
    "wanted": 5.0,
    "wanted_own": 3.0,
}
MORE: dict[str, Samples] = {
    "component_up": [({"component": "loggerplex"}, 0.0)],
    "joined": [({"state": "silent"}, 2.0)],
    "wanted": [({"what": "gateways"}, 2.0)],
    "disk_size_bytes": [({}, 10.0)],
    "disk_free_bytes": [({}, 4.0)],
}


def test_exposition_is_prometheus_text() -> None:
    rows = [ROW, ROW | {"name": "ps", "state": "silent", "status": {"queue": 2.0}}]
    newest = {("agent/0", 'a"b\\c'): 1.5, ("learner/0", "x"): math.nan, ("eval/0", "y"): -math.inf}
    text = exposition(rows, newest, {})
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [
        'surreal_like_component_up{component="agent-0"} 1.0',
        'surreal_like_component_up{component="ps"} 0.0',
        'surreal_like_component_age_seconds{component="agent-0"} 0.5',
        'surreal_like_component_age_seconds{component="ps"} 0.5',
        'surreal_like_component_state{component="agent-0",state="running"} 1.0',
        'surreal_like_component_state{component="ps",state="silent"} 1.0',
        'surreal_like_component_restarts_total{component="agent-0"} 2',
        'surreal_like_component_restarts_total{component="ps"} 2',
        'surreal_like_component_rss_bytes{component="agent-0"} 7',
        'surreal_like_component_rss_bytes{component="ps"} 7',
        'surreal_like_component_status{component="ps",key="queue"} 2.0',
        'surreal_like_scalar{client="agent/0",tag="a\\"b\\\\c"} 1.5',
        'surreal_like_scalar{client="learner/0",tag="x"} NaN',
        'surreal_like_scalar{client="eval/0",tag="y"} -Inf',
    ]


def test_numbers_of_the_run_come_from_the_learner_and_have_no_component() -> None:
    rows = [ROW | {"status": OF_RUN}, ROW | {"name": "learner", "status": {**OF_RUN, "own": 1.0}}]
    families = parse(exposition(rows, {}, MORE))
    for name, value in OF_RUN.items():
        if not name.startswith("wanted"):
            assert families[f"surreal_like_{name}"] == {None: value}
    wanted = {'what="agents"': 5.0, 'what="own_agents"': 3.0, 'what="gateways"': 2.0}
    assert families["surreal_like_wanted"] == wanted
    assert families["surreal_like_disk_free_bytes"] == {None: 4.0}
    assert families["surreal_like_component_up"]['component="loggerplex"'] == 0.0
    own = families["surreal_like_component_status"]
    # A guest may send any status: it is no number of the run.
    assert own['component="agent-0",key="env_steps_total"'] == 40.0
    assert own['component="learner",key="own"'] == 1.0
    assert len(own) == len(OF_RUN) + 1


def test_only_totals_are_counters() -> None:
    kinds = re.findall("# TYPE (.*) (.*)", exposition([], {}, {}))
    counters = {name for name, kind in kinds if kind == "counter"}
    assert counters == {name for name, _ in kinds if name.endswith("_total")}
    assert len(counters) == 4


# -- the format, read as its definition says, forgiving nothing -----------------------------------

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
HELP = re.compile(rf"# HELP ({NAME}) ((?:[^\\\n]|\\\\|\\n)+)")
TYPE = re.compile(rf"# TYPE ({NAME}) (counter|gauge|histogram|summary|untyped)")
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
VALUE = r"[+-]?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|Inf)|NaN"
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? ({VALUE})")


def parse(text: str) -> dict[str, dict[str | None, float]]:
    """Name -> labels -> value; every line must be of the format, each family in one block."""
    families: dict[str, dict[str | None, float]] = {}
    helped = ""
    assert text.endswith("\n")
    for line in text.removesuffix("\n").split("\n"):
        if found := HELP.fullmatch(line):
            helped = found[1]
            continue
        if found := TYPE.fullmatch(line):
            assert found[1] == helped
            assert found[1] not in families, f"{found[1]} is in two blocks"
            families[found[1]] = {}
            continue
        found = SAMPLE.fullmatch(line)
        assert found, f"no line of the format: {line!r}"
        assert found[1] == list(families)[-1], f"{line!r} stands outside of its family"
        assert found[2] not in families[found[1]], f"{line!r} is there twice"
        families[found[1]][found[2]] = float(found[3])
    return families


@pytest.mark.parametrize(
    "text",
    [
        "a 1\n",
        "# TYPE a gauge\na 1\n",
        "# HELP a b\n# TYPE a gauge\na 1",
        "# HELP a b\n# TYPE a gauge\nb 1\n",
        '# HELP a b\n# TYPE a gauge\na{b="1"} 1\na{b="1"} 2\n',
        '# HELP a b\n# TYPE a gauge\na{b="c"d"} 1\n',
        "# HELP a b\n# TYPE a gauge\na nan\n",
        "# HELP a b\n# TYPE a gauge\n\na 1\n",
    ],
)
def test_the_strict_reader_refuses(text: str) -> None:
    with pytest.raises((AssertionError, IndexError)):
        parse(text)


def test_exposition_of_a_run_is_of_the_format_and_the_glossary_knows_its_names() -> None:
    status = {"steps_per_second": 1e-7, "version": 12.0, "iteration": 1e22}
    rows = [ROW | {"status": status}, ROW | {"name": "ps", "state": "failed"}]
    rows.append(ROW | {"name": "learner", "status": OF_RUN})
    newest = {
        ("learner/0", "return/train"): 1.5,
        ("agent/0", 'odd "tag"\\\nof two lines'): math.nan,
    }
    families = parse(exposition(rows, newest, MORE))
    glossary = (ROOT / "docs" / "metrics.md").read_text()
    for name, samples in families.items():
        assert f"`{name}" in glossary
        assert samples
    assert families["surreal_like_component_up"] == {
        'component="agent-0"': 1.0,
        'component="ps"': 0.0,
        'component="learner"': 1.0,
        'component="loggerplex"': 0.0,
    }
    assert families["surreal_like_component_status"]['component="agent-0",key="iteration"'] == 1e22
    assert families["surreal_like_scalar"]['client="learner/0",tag="return/train"'] == 1.5


def test_without_components_the_text_is_of_the_format() -> None:
    assert set(parse(exposition([], {}, {}))) == set(parse(exposition([ROW], {}, {})))


@pytest.fixture
def page() -> Iterator[Page]:
    page = Page(0)
    yield page
    page.close()


def fetch(address: str) -> tuple[str, str]:
    with urllib.request.urlopen(address, timeout=5) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_page_serves_the_newest_text(page: Page) -> None:
    assert page.address.startswith("http://127.0.0.1:")
    page.show("a 1\n")
    page.show("a 2\n")
    assert fetch(page.address) == ("text/plain; version=0.0.4; charset=utf-8", "a 2\n")


def request(address: str, host: str) -> bytes:
    """The answer to a request with that Host, of a server on any path."""
    place, _, path = address.removeprefix("http://").partition("/")
    where, _, port = place.rpartition(":")
    with socket.create_connection((where, int(port)), timeout=20) as connection:
        line = f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        connection.sendall(line.encode())
        return b"".join(iter(lambda: connection.recv(4096), b""))


OWN = ("localhost", "LocalHost:9100", "127.0.0.1", "127.0.0.1:80", "[::1]:80", "10.0.0.7:9100")
FOREIGN = ("", "evil.example", "evil.example:9100", "localhost.evil.example", "127.0.0.1.evil")


@pytest.mark.parametrize("host", [*OWN, *FOREIGN, "a\r\nHost: localhost"])
def test_page_answers_only_for_names_of_this_machine(page: Page, host: str) -> None:
    page.show("a 1\n")
    answer = request(page.address, host)
    assert (b" 200 OK" in answer, b"a 1" in answer) == (
        (True,) * 2 if host in OWN else (False,) * 2
    )
    if host not in OWN:
        assert b" 403 Forbidden" in answer


def test_reader_that_says_nothing_delays_others_only_for_a_moment(page: Page) -> None:
    page.show("a 1\n")
    host, port = page.address.removeprefix("http://").removesuffix("/metrics").split(":")
    with socket.create_connection((host, int(port))):
        assert fetch(page.address)[1] == "a 1\n"


def test_reader_that_never_ends_its_request_delays_others_only_for_a_moment(page: Page) -> None:
    page.show("a 1\n")
    host, port = page.address.removeprefix("http://").removesuffix("/metrics").split(":")
    ended = threading.Event()
    with socket.create_connection((host, int(port))) as slow:

        def drip() -> None:
            with suppress(OSError):
                while not ended.wait(0.02):
                    slow.sendall(b"G")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert fetch(page.address)[1] == "a 1\n"
        finally:
            ended.set()
            dripping.join()


def test_a_request_that_is_too_long_is_not_answered(page: Page) -> None:
    host, port = page.address.removeprefix("http://").removesuffix("/metrics").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as long, suppress(OSError):
        long.sendall(b"x" * 100_000)
        assert long.recv(1) == b""


IN_POD = {"run": {"launcher": "kubernetes"}}


@pytest.mark.parametrize(
    ("launched", "admitted", "host"),
    [
        pytest.param(IN_POD, ["monitoring"], "127.0.0.9", marks=needs("kubernetes")),
        (IN_POD, [], "127.0.0.1"),
        ({}, ["monitoring"], "127.0.0.1"),
        ({"run": {"launcher": "local"}}, ["monitoring"], "127.0.0.1"),
    ],
)
def test_only_a_pod_that_is_protected_is_reached_by_others(
    launched: dict[str, Any], admitted: list[str], host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_IP", "127.0.0.9")
    config = Config({"session_config": {"kubernetes": {"metrics_from": admitted}}, **launched})
    page = Page(0, metrics_host(config))
    try:
        assert page.address.startswith(f"http://{host}:")
        assert fetch(page.address)[1] == ""
    finally:
        page.close()


def test_port_in_use_is_one_clear_line(page: Page) -> None:
    port = int(page.address.removesuffix("/metrics").rsplit(":", 1)[1])
    with pytest.raises(UsageError, match=rf"127\.0\.0\.1:{port}: .*tensorplex\.prometheus_port"):
        Page(port)


def test_closed_page_gives_its_port_back() -> None:
    page = Page(0)
    port = int(page.address.removesuffix("/metrics").rsplit(":", 1)[1])
    page.close()
    Page(port).close()


def test_only_this_machine_can_read_it(page: Page) -> None:
    port = int(page.address.removesuffix("/metrics").rsplit(":", 1)[1])
    listening = [
        connection.laddr.ip
        for connection in psutil.Process().net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    ]
    assert listening == ["127.0.0.1"]
