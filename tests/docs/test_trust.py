"""docs/trust.md has a row for every field that others than the launcher's own processes send."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from session.loggerplex.log_server import RECORDS as LOGS
from session.tensorplex.metrics_server import RECORDS as METRICS
from session.wire import roles
from session.wire.schema import Kinds
from surreal_like.addons.gateway.messages import Protocol
from surreal_like.addons.gateway.payloads import Refusal
from surreal_like.addons.join import admission_server as joining
from surreal_like.addons.tuning.worker_connections import REQUESTS as OF_WORKERS
from surreal_like.coordinator.control import requests
from surreal_like.experience.schemas import EXPERIENCE
from surreal_like.ps.schemas import REQUESTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "trust.md"
# Records have kinds of their own inside one kind of message.
RECORDS = {"tensorplex.records": METRICS, "loggerplex.records": LOGS}
DOORS: Mapping[str, Kinds] = {
    "ps.requests": REQUESTS,
    "experience": EXPERIENCE,
    "learner.control": requests({"parameters": 1}, ["eval"]),
    "tune.workers": OF_WORKERS,
    **RECORDS,
}
# Every key may send there.
OPEN = dict.fromkeys((joining.ENDPOINT, joining.TUNE_ENDPOINT), joining.REQUESTS)
OBSERVATION, ACTION = {"type": "float32", "dim": []}, {"type": "discrete", "dim": [2]}
# Values of one environment that are right.
OF_CLIENTS = {
    "observation": 0.0, "reward": 1.0, "terminated": False, "truncated": False, "action": 1,
}  # fmt: skip
NAMES = re.compile(r"`([^`]+)`")

Field = tuple[str, str, str]


class Row(NamedTuple):
    """What the page says of some fields."""

    endpoints: list[str]
    kinds: list[str]
    fields: list[str]
    tests: list[str]

    def covers(self, field: Field) -> bool:
        endpoint, kind, path = field
        named = endpoint in self.endpoints and kind in self.kinds
        return named and any(_fits(path, each) for each in self.fields)


def _fits(path: str, pattern: str) -> bool:
    stem = pattern.removesuffix("*")
    return path == pattern or (stem != pattern and path.startswith(stem))


def rows() -> list[Row]:
    text = PAGE.read_text().partition("<!-- threats -->\n")[2].partition("<!-- end -->")[0]
    found: list[Row] = []
    endpoints: list[str] = []
    for line in filter(None, text.splitlines()):
        if line.startswith("Of "):
            endpoints = NAMES.findall(line)
            continue
        row = re.fullmatch(r"\* (.+?): (.+?)\. \*.+\*: .+ \((`tests/.+)\)", line)
        assert row is not None, line
        found.append(Row(endpoints, *(NAMES.findall(part) for part in row.groups())))
    return found


def granted() -> dict[str, set[str]]:
    """Endpoint -> kinds that keys of others may send there."""
    found: dict[str, set[str]] = {}
    for rights in roles._RIGHTS.values():
        for endpoint, kinds in rights.items():
            found.setdefault(endpoint, set()).update(kinds)
    return {endpoint: kinds for endpoint, kinds in found.items() if kinds}


class Seen(dict[str, Any]):
    """A message of a client that notes which of its fields are read."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)
        self.names: set[str] = set()

    def get(self, key: str, otherwise: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, otherwise)

    def __getitem__(self, key: str) -> Any:
        self.names.add(key)
        return super().__getitem__(key)


def of_gateway() -> Iterator[Field]:
    """Fields that the protocol of the gateway reads, by kind."""
    for num_envs in (1, 2):
        protocol = Protocol(OBSERVATION, ACTION, num_envs)
        one = num_envs == 1
        given = {name: each if one else [each] * num_envs for name, each in OF_CLIENTS.items()}
        for kind in (*protocol._requests, *protocol._others):
            seen = Seen(kind=kind, seq=1, v=1, values={"a": 1.0}, t=1, **given)
            if kind == "hello":
                seen = Seen(kind=kind, v=1)
            with suppress(Refusal):
                protocol.parse(seen)
            yield from (("gateway", kind, name) for name in seen.names - {"kind"})


def fields() -> list[Field]:
    """Every field that others may send."""
    found: list[Field] = []
    for endpoint, kinds in granted().items():
        if endpoint in RECORDS:
            kinds = set(RECORDS[endpoint])
        for kind in sorted(kinds):
            found += [(endpoint, kind, path) for path in DOORS[endpoint][kind].paths()]
    for endpoint, schemas in OPEN.items():
        for kind, schema in schemas.items():
            found += [(endpoint, kind, path) for path in schema.paths()]
    return [*found, *dict.fromkeys(of_gateway())]


def test_every_field_has_one_row() -> None:
    table = rows()
    counts = {field: sum(row.covers(field) for row in table) for field in fields()}
    assert {field: count for field, count in counts.items() if count != 1} == {}


def test_every_row_is_about_a_field() -> None:
    every = fields()
    assert [row for row in rows() if not any(row.covers(field) for field in every)] == []


@pytest.mark.parametrize("test", sorted({test for row in rows() for test in row.tests}))
def test_every_named_test_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert re.search(rf"(?m)^\s*(async )?def {name}\(", (ROOT / file).read_text()), test
