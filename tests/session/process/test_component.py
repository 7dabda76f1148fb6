"""Components as data: names, commands, and the wiring of a topology."""

import json
import sys
from pathlib import Path

import pytest

from session.errors import ConfigError
from session.process.component import Component, Resources, Restart, Topology


def replay(name: str = "replay-0", **more: object) -> Component:
    fields = {"kind": "replay", "module": "main.replay", "binds": (f"{name}.experience",), **more}
    return Component(name, **fields)  # type: ignore[arg-type]


def agent(index: int = 0, **more: object) -> Component:
    fields = {"connects": ("replay-0.experience",), "needs_torch": True, **more}
    return Component(f"agent-{index}", "agent", "main.agent", index, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a", "agent-0", "0", "a" * 63])
def test_good_names(name: str) -> None:
    assert Component(name, "agent", "main.agent").name == name


@pytest.mark.parametrize(
    "name", ["", "Agent-0", "agent_0", "-agent", "agent-", "agent.0", "a" * 64, "agent 0", "a\n"]
)
def test_bad_names_are_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(ConfigError, match="lower case letters, digits and hyphens, at most 63"):
        Component(name, "agent", "main.agent")


@pytest.mark.parametrize(
    ("name", "kind", "index", "metric_id"),
    [
        ("agent-3", "agent", 3, "agent/3"),
        ("eval-0", "evaluator", 0, "eval/0"),
        ("replay-12", "replay", 12, "replay/12"),
        ("learner", "learner", 0, "learner/0"),
        ("ps", "ps", 0, "session/ps"),
        ("tensorplex", "tensorplex", 0, "session/tensorplex"),
    ],
)
def test_metric_ids(name: str, kind: str, index: int, metric_id: str) -> None:
    assert Component(name, kind, f"main.{kind}", index).metric_id == metric_id


def test_the_command_is_the_line_to_paste() -> None:
    line = agent(3).command("runs/x")
    assert line == [
        sys.executable,
        "-P",
        "-m",
        "main.agent",
        "--name",
        "agent-3",
        "--folder",
        "runs/x",
    ]


def test_a_topology_knows_its_components_and_endpoints() -> None:
    topology = Topology([replay(), agent(0), agent(1)])
    assert [component.name for component in topology] == ["replay-0", "agent-0", "agent-1"]
    assert topology.endpoints == ("replay-0.experience",)
    assert topology.of_kind("agent") == [agent(0), agent(1)]
    assert topology.of_kind("learner") == []
    assert "agent-1" in topology
    assert "agent-2" not in topology
    assert topology["agent-1"].index == 1


@pytest.mark.parametrize(
    ("components", "message"),
    [
        ([agent(0, connects=()), agent(0, connects=())], "two components have the same name"),
        (
            [replay(), replay("replay-1", binds=("replay-0.experience",))],
            r"replay-0 and replay-1 bind replay-0\.experience",
        ),
        ([agent()], r"agent-0 connects to replay-0\.experience: no component binds it"),
    ],
)
def test_wrong_wiring_is_refused(components: list[Component], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Topology(components)


def test_a_further_agent_is_like_the_first() -> None:
    topology = Topology([replay(), agent(0), agent(1)])
    further = topology.component("agent-7")
    assert further == agent(7)
    assert topology.component("agent-1") is topology["agent-1"]


@pytest.mark.parametrize(
    "name", ["replay-1", "agent", "agent-x", "agent-", "learner", "eval-0", ""]
)
def test_what_fits_no_component_is_refused_with_what_there_is(name: str) -> None:
    topology = Topology([replay(), agent(0)])
    with pytest.raises(ConfigError, match=f"no component '{name}'; there are replay-0, agent-0"):
        topology.component(name)


def test_a_topology_survives_its_file() -> None:
    components = [
        replay(resources=Resources(0.5, 1 << 30, 0), restart=Restart(2, 10.0)),
        agent(0),
    ]
    data = json.loads(json.dumps(Topology(components).to_dict()))
    assert Topology.from_dict(data).components == tuple(components)


def test_the_file_of_a_topology_may_say_more() -> None:
    data = Topology([replay()]).to_dict()
    data["components"][0]["command"] = ["python"]
    data["launcher"] = "local"
    assert Topology.from_dict(data).components == (replay(),)


def test_a_file_has_the_endpoints_of_other_machines(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(Topology([agent(7)], ("replay-0.experience",)).to_dict()))
    read = Topology.load(path)
    assert (read["agent-7"], read.outside) == (agent(7), ("replay-0.experience",))


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"components": [{"name": "ps"}]}', '"x"'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "topology.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=f"{path}: not a topology"):
        Topology.load(path)
