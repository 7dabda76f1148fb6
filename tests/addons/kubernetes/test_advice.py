"""What is said before a run goes to a cluster, and while it idles there after its end."""

from __future__ import annotations

import pytest

from main.cli import main as surreal_like
from session.addons.kubernetes.settings import idle_note, launch_advice, warnings
from session.config import Config
from tests.addons.kubernetes.conftest import setting_of

pytestmark = pytest.mark.usefixtures("quick")
PUSHED = "session_config.kubernetes.image=registry.example.org/me/surreal-like:1"
STOP = "session_config.stop"
LONG = f"{STOP}.seconds=3600"
NAMES = ["learner", "replay-0", "ps", "agent-0", "agent-1", "eval-0", "tensorplex", "loggerplex"]


def config_of(*overrides: str) -> Config:
    return setting_of(*overrides).config


def test_an_image_without_a_registry_is_questioned() -> None:
    (line,) = warnings(config_of(LONG))
    assert "image surreal-like:cpu names no registry" in line
    assert "kind load docker-image surreal-like:cpu" in line
    assert "session_config.kubernetes.image=" in line


def test_a_budget_of_the_desk_is_questioned() -> None:
    (line,) = warnings(config_of(PUSHED))
    assert line.startswith("session_config.stop.seconds is 180")
    assert "session_config.stop.seconds=3600" in line


def test_what_fits_a_cluster_is_not_questioned() -> None:
    assert warnings(config_of(PUSHED, LONG)) == []
    steps = (f"{STOP}.eval_return=null", f"{STOP}.seconds=null", f"{STOP}.env_steps=1000")
    assert warnings(config_of(PUSHED, *steps)) == []
    assert warnings(config_of(PUSHED, f"{STOP}.env_steps=null", f"{STOP}.seconds=null")) == []


def test_a_run_without_an_end_is_questioned() -> None:
    never = (f"{STOP}.{key}=null" for key in ("eval_return", "env_steps", "seconds"))
    (line,) = warnings(config_of(PUSHED, *never))
    assert line.startswith("the run has neither a goal nor a budget")
    assert f"{STOP}.seconds=3600" in line


def test_a_launch_says_what_stays_reserved() -> None:
    never = "session_config.kubernetes.ttl_seconds=null"
    (line,) = launch_advice(config_of(PUSHED, LONG, never), NAMES)
    # Replay, two agents, one evaluator: 1 each; the servers 1.25.
    assert "keep 5.25 cores reserved until surreal-like stop" in line
    assert "ttl_seconds=3600" in line
    (line,) = launch_advice(config_of(PUSHED, LONG), NAMES)
    assert line.startswith(
        "all objects but the volumes are removed 3600 s after the end of the run"
    )
    assert "ttl_seconds; null: they stay" in line


def test_metrics_that_nothing_reaches_are_questioned() -> None:
    port = "session_config.tensorplex.prometheus_port=9100"
    (line,) = warnings(config_of(PUSHED, LONG, port))
    assert "9100" in line
    assert "session_config.kubernetes.metrics_from=[NAMESPACE]" in line
    named = "session_config.kubernetes.metrics_from=[monitoring]"
    assert warnings(config_of(PUSHED, LONG, port, named)) == []


def test_a_run_that_is_over_says_what_it_still_reserves() -> None:
    config = config_of("session_config.kubernetes.ttl_seconds=600")
    assert idle_note(config, ["agent-0", "agent-1", "ps"]) == (
        "the run is over; 3 components idle and keep 2.5 cores reserved, at most 600 s after the "
        "end; remove them: surreal-like stop"
    )
    assert idle_note(config, []) == ""


def test_plan_says_it_beside_the_objects(capsys: pytest.CaptureFixture[str]) -> None:
    assert surreal_like(["plan", "configs/cartpole_dqn.yaml", "--on", "kubernetes"]) == 0
    said = capsys.readouterr()
    assert [line.split(":")[1] for line in said.err.splitlines()] == [" note"] * 3
    assert "the run requests 7.75 cores, 15.0 GB of memory for 9 processes" in said.err
    assert "note" not in said.out.splitlines()[0]
