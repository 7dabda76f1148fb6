"""The newest values as Prometheus text over HTTP."""

import math
import socket
import urllib.request
from collections.abc import Iterator

import pytest

from session.errors import UsageError
from session.tensorplex.prometheus import Page, exposition

ROW = {"name": "agent-0", "state": "running", "age_seconds": 0.5, "rss_bytes": 7, "status": {}}


def test_exposition_is_prometheus_text() -> None:
    rows = [ROW, ROW | {"name": "ps", "state": "lost", "status": {"queue": 2.0}}]
    newest = {("agent/0", 'a"b\\c'): 1.5, ("learner/0", "x"): math.nan, ("eval/0", "y"): -math.inf}
    assert exposition(rows, newest).splitlines() == [
        "# TYPE surreal_like_component_up gauge",
        'surreal_like_component_up{component="agent-0"} 1.0',
        'surreal_like_component_up{component="ps"} 0.0',
        "# TYPE surreal_like_component_age_seconds gauge",
        'surreal_like_component_age_seconds{component="agent-0"} 0.5',
        'surreal_like_component_age_seconds{component="ps"} 0.5',
        "# TYPE surreal_like_component_rss_bytes gauge",
        'surreal_like_component_rss_bytes{component="agent-0"} 7',
        'surreal_like_component_rss_bytes{component="ps"} 7',
        "# TYPE surreal_like_component_status gauge",
        'surreal_like_component_status{component="ps",key="queue"} 2.0',
        "# TYPE surreal_like_scalar gauge",
        'surreal_like_scalar{client="agent/0",tag="a\\"b\\\\c"} 1.5',
        'surreal_like_scalar{client="learner/0",tag="x"} NaN',
        'surreal_like_scalar{client="eval/0",tag="y"} -Inf',
    ]


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


def test_reader_that_says_nothing_delays_others_only_for_a_moment(page: Page) -> None:
    page.show("a 1\n")
    host, port = page.address.removeprefix("http://").removesuffix("/metrics").split(":")
    with socket.create_connection((host, int(port))):
        assert fetch(page.address)[1] == "a 1\n"


def test_port_in_use_is_one_clear_line(page: Page) -> None:
    port = int(page.address.removesuffix("/metrics").rsplit(":", 1)[1])
    with pytest.raises(UsageError, match=rf"127\.0\.0\.1:{port}: .*tensorplex\.prometheus_port"):
        Page(port)


def test_closed_page_gives_its_port_back() -> None:
    page = Page(0)
    port = int(page.address.removesuffix("/metrics").rsplit(":", 1)[1])
    page.close()
    Page(port).close()
