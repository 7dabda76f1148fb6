"""The page of a gateway; tests/addons/gateway/runs/test_gateway_page.py learns in it."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from functools import partial

import pytest

from surreal_like.addons.gateway.page import page_address, read_pages
from tests.addons.gateway.rig import Stage, make_stage
from tests.addons.gateway.test_surreal_client import Playing
from tests.surreal_like.agent.rig import make_config


def get(address: str) -> tuple[str, bytes]:
    with urllib.request.urlopen(address, timeout=10.0) as answer:
        return answer.headers["Content-Type"], answer.read()


def fetched(path: str, address: str) -> tuple[str, bytes]:
    return get(f"http://{address}{path}")


def addresses(stage: Stage) -> list[str]:
    """The address of the page, once the port is open; empty if there is none."""
    stage.rig.until(lambda: stage.rig.events("listening"))
    return list(stage.rig.events("page"))


def test_the_gateway_serves_the_page() -> None:
    with make_stage(gateway={"page": True}) as stage:
        assert addresses(stage) == [f"http://127.0.0.1:{stage.port}/"]
        for path, page in read_pages().items():
            found = Playing(stage, partial(fetched, path)).result()
            assert found == (page.content_type, page.body)


def test_without_the_setting_there_is_no_page() -> None:
    with make_stage() as stage:
        assert addresses(stage) == []
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            Playing(stage, lambda address: get(f"http://{address}/")).result()
        caught.value.close()


def test_every_file_that_is_named_is_served() -> None:
    pages = read_pages()
    for page in pages.values():
        named = re.findall(rb'(?:from "\./|src=")([\w.]+)"', page.body)
        assert {f"/{name.decode()}" for name in named} <= pages.keys()
    assert len(pages) == 4


@pytest.mark.parametrize(
    ("changes", "address"),
    [
        ({}, "http://127.0.0.1:7100/"),
        ({"host": "::1", "tls": {"cert": "a", "key": "b"}}, "https://[::1]:7100/"),
    ],
)
def test_the_address_of_the_page(changes: dict[str, object], address: str) -> None:
    assert page_address(make_config(gateway=changes), 7100) == address
