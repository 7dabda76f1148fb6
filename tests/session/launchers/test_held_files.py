"""A launcher holds memory for the components that use it, as long as it lives."""

from __future__ import annotations

import os

import pytest

from session.launchers.held_files import HeldMemory
from session.process.component import Component, Topology

TOPOLOGY = Topology(
    [
        Component("replay-0", "replay", "main.replay", binds=("replay-0.batches",)),
        Component("replay-1", "replay", "main.replay", index=1),
        Component("learner", "learner", "main.learner", connects=("replay-0.batches", "ps.x")),
    ],
    outside=("ps.x",),
)


def test_each_shard_has_a_file_of_its_own_until_the_end() -> None:
    held = HeldMemory()
    given = held.give(TOPOLOGY)
    paths = [given[name].memory for name in ("replay-0", "replay-1")]
    assert given["learner"].memory == ""
    assert given.outside == TOPOLOGY.outside
    for number, path in enumerate(paths):
        with open(path, "r+b") as file:
            file.write(bytes([number]))
    for number, path in enumerate(paths):
        with open(path, "rb") as file:
            assert file.read() == bytes([number])
    held.close()
    assert not any(os.path.exists(path) for path in paths)


def test_a_topology_with_memory_is_written_and_read() -> None:
    held = HeldMemory()
    given = held.give(TOPOLOGY)
    assert Topology.from_dict(given.to_dict())["replay-0"] == given["replay-0"]
    older = given.to_dict()
    for each in older["components"]:
        del each["memory"]
    assert Topology.from_dict(older)["replay-0"].memory == ""
    held.close()


@pytest.mark.parametrize("platform", ["darwin"])
def test_elsewhere_there_is_none(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr("sys.platform", platform)
    assert HeldMemory().give(TOPOLOGY) is TOPOLOGY
