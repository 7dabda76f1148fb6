"""The picture of a run: every process and every socket of its topology, and nothing else."""

from __future__ import annotations

import re

import pytest

from main.cli.plan import dataflow, mermaid
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.process.component import Topology
from surreal_like.dataflow import Operator, from_items
from surreal_like.experiment.topology import make_topology
from tests.main.conftest import Command


def topology(agents: int = 2, shards: int = 1, evals: int = 1) -> Topology:
    config = Config(BASE_CONFIG.to_dict())
    config.session_config.agent.num = agents
    config.session_config.evaluator.num = evals
    config.learner_config.replay.replay_shards = shards
    return make_topology(config)


def arrows(picture: str) -> set[tuple[str, str, str]]:
    """Return (from, what, to)."""
    found = re.findall(r"^ +(\w+) -- \"(.*)\" --> (\w+)$", picture, re.MULTILINE)
    return {(source, text, target) for source, text, target in found}


def test_arrows_point_the_way_of_the_data() -> None:
    assert arrows(mermaid(topology())) == {
        ("agent", "experience: chunks", "replay"),
        ("replay", "acks", "agent"),
        ("replay", "batches", "learner"),
        ("learner", "priorities", "replay"),
        ("learner", "parameters: published", "ps"),
        ("ps", "requests: parameters, polled", "agent"),
        ("ps", "requests: parameters, polled", "evaluator"),
        ("evaluator", "control: scores", "learner"),
    }


def test_every_endpoint_of_the_topology_is_on_an_arrow() -> None:
    every = topology()
    text = mermaid(every)
    ends = {end.rpartition(".")[2] for end in every.endpoints if "plex." not in end}
    on_arrows = {what.partition(":")[0] for _, what, _ in arrows(text)}
    assert on_arrows == ends


def test_operators_of_a_plan_are_in_a_box() -> None:
    one, other = from_items([1]).for_each(str).duplicate(2)
    lines = list(dataflow(one.for_each(Operator('say("x")', str)).union(other)))
    assert [line.strip() for line in lines[1:-1]] == [
        'operator1["from_items"]',
        'operator2["str"]',
        'operator3["clone 1 of 2"]',
        """operator4["say('x')"]""",
        'operator5["clone 2 of 2"]',
        'operator6["concurrently(async)"]',
        "operator1 --> operator2",
        "operator2 --> operator3",
        "operator3 --> operator4",
        "operator2 --> operator5",
        "operator4 --> operator6",
        "operator5 --> operator6",
    ]
    assert lines[0].strip().startswith("subgraph dataflow")


@pytest.mark.parametrize(
    ("agents", "shards", "boxes"),
    [
        (1, 1, ('agent["agent-0"]', 'replay["replay-0"]')),
        (2, 2, ('agent["agent-0, agent-1"]', 'replay["replay-0, replay-1"]')),
        (64, 3, ('agent["agent-0 … agent-63"]', 'replay["replay-0 … replay-2"]')),
    ],
)
def test_one_box_for_all_of_a_kind(agents: int, shards: int, boxes: tuple[str, str]) -> None:
    picture = mermaid(topology(agents, shards))
    assert all(box in picture for box in boxes)
    assert len(arrows(picture)) == 8


def test_what_does_not_run_is_not_drawn() -> None:
    picture = mermaid(topology(agents=0, evals=0))
    assert "agent" not in picture
    assert "evaluator" not in picture


@pytest.mark.usefixtures("quick")
def test_plan_prints_it(command: Command) -> None:
    said = command("plan", "small.yaml", "--format", "mermaid")
    assert said.code == 0
    assert said.out.startswith("flowchart LR\n")
