"""The agent's base class: what authors rely on, alone, in a process and in a script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import main.ps
from session.config import Config
from session.config.sections import sections_of
from session.folder import RunFolder
from session.launchers.launcher import write_run_files
from session.loggerplex.client import Log
from surreal_like import Agent, AgentMode
from surreal_like.agent.link import AgentLink
from surreal_like.errors import SpecError
from surreal_like.experience.actor_state import acting_of
from surreal_like.experience.chunk import Chunk
from surreal_like.network.flat import read_flat
from tests.surreal_like.agent.rig import (
    LearnerPeer,
    Line,
    LineAgent,
    ReplayPeer,
    Rig,
    make_config,
    make_rig,
)
from tests.surreal_like.agent.rig import rig as rig
from tests.surreal_like.ps.test_server import served

ROOT = Path(__file__).resolve().parents[3]


def make_agent(
    config: Config | None = None, *, mode: str = "training", **changes: Any
) -> LineAgent:
    config = config or make_config()
    values: dict[str, Any] = {
        **sections_of(config),
        "agent_id": 0,
        "agent_mode": mode,
    }
    return LineAgent(**{**values, **changes})


def attached(rig: Rig) -> LineAgent:
    agent = make_agent(rig.config)
    agent.attach(AgentLink(rig.context("agent-0")))
    return agent


def test_A1_A3_A4_an_agent_overrides_act_and_module_dict() -> None:
    config = make_config()
    bare = Agent(
        **sections_of(config),
        agent_id=0,
        agent_mode="training",
    )
    with pytest.raises(NotImplementedError):
        bare.act(None)
    with pytest.raises(NotImplementedError):
        bare.module_dict()


def test_A6_default_config_is_empty_unless_overridden() -> None:
    assert Agent.default_config() == {}


def test_A23_the_constructor_takes_five_keywords() -> None:
    agent = make_agent(agent_id=3, mode="eval_stochastic")
    assert agent.agent_id == 3
    assert agent.agent_mode is AgentMode.eval_stochastic
    assert agent.session_config.agent.num == 1
    with pytest.raises(TypeError):
        LineAgent(agent.learner_config)  # type: ignore[call-arg]


def test_A16_A17_log_and_tensorplex_work_without_a_run() -> None:
    agent = make_agent()
    assert isinstance(agent.log, Log)
    agent.log.info("acted %d times", 3)
    agent.tensorplex.add_scalar("mine", 1.0, 0)


def test_an_agent_alone_knows_its_part() -> None:
    agent = make_agent(make_config(agent={"num": 4}))
    assert agent.num_agents == 4
    assert (agent.progress.env_steps, agent.progress.iteration) == (0, 0)
    assert agent.first.tolist() == [True]
    assert agent.initial_state(3) is None
    chunk = Chunk({}, 1, [])
    assert agent.postprocess(chunk) is chunk


def test_agents_have_random_numbers_of_their_own() -> None:
    draws = [
        make_agent(agent_id=i, mode=m).rng.random()
        for i in (0, 1)
        for m in ("training", "eval_stochastic")
    ]
    assert len(set(draws)) == 4
    assert make_agent().rng.random() == draws[0]


def test_A8_fetch_parameter_loads_what_the_learner_published(rig: Rig) -> None:
    learner, agent = LearnerPeer(rig), attached(rig)
    assert not agent.fetch_parameter()
    torch.nn.init.constant_(learner.network.scale, 5.0)  # buffers travel too
    learner.publish(env_steps=123)
    served(rig, 1)
    assert agent.fetch_parameter()
    assert (read_flat(agent.module_dict()) == read_flat({"network": learner.network})).all()
    assert agent.version == 1
    assert agent.progress == (123, 10)
    assert not agent.fetch_parameter()


def test_the_version_that_acts_is_set_at_the_sender(rig: Rig) -> None:
    learner, agent = LearnerPeer(rig), make_agent(rig.config)
    context = rig.context("agent-0")
    agent.attach(AgentLink(context))
    learner.publish()
    served(rig, 1)
    agent.fetch_parameter()
    assert acting_of(context).version == 1


def test_A9_to_A13_parameter_info_has_four_keys(rig: Rig) -> None:
    learner, agent = LearnerPeer(rig), attached(rig)
    assert agent.fetch_parameter_info() == {"time": 0.0, "iteration": 0, "message": "", "hash": ""}
    learner.publish()
    served(rig, 1)
    info = agent.fetch_parameter_info()
    assert set(info) == {"time", "iteration", "message", "hash"}
    assert (info["time"], info["iteration"], info["message"]) == (1.0, 10, "version 1")
    assert info["hash"] == learner.network.hash() or len(info["hash"]) == 16
    assert agent.version == 0  # asking is not fetching


def test_A5_other_modules_than_the_learners_are_refused_with_both_sides(rig: Rig) -> None:
    learner, agent = LearnerPeer(rig), attached(rig)
    learner.publish(network=Line(width=5))
    served(rig, 1)
    with pytest.raises(SpecError, match=r"\[3, 2\].*\[5, 2\]"):
        agent.fetch_parameter()


def test_A2_plain_torch_modules_are_accepted(rig: Rig) -> None:
    class Plain(LineAgent):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.plain = torch.nn.Linear(2, 3)

        def module_dict(self) -> Any:
            return {"network": self.plain}

    config = rig.config
    agent = Plain(
        **sections_of(config),
        agent_id=0,
        agent_mode=AgentMode.training,
    )
    agent.attach(AgentLink(rig.context("agent-0")))
    learner, network = LearnerPeer(rig), torch.nn.Linear(2, 3)
    learner.publish(network=network)
    served(rig, 1)
    agent.fetch_parameter()
    assert torch.equal(agent.plain.weight, network.weight)


def test_A14_A15_update_tensorplex_reports_once_per_interval(rig: Rig) -> None:
    agent, context = make_agent(rig.config), rig.context("agent-0")
    agent.attach(AgentLink(context))

    def reported() -> dict[str, float]:
        context.flush()
        return rig.scalars("agent/0")

    for number in range(5):
        agent.update_tensorplex({"mine": float(number)})
    rig.pass_time(0.05)
    assert reported() == {}
    rig.clock.seconds += 1.0
    for number in range(5, 10):
        agent.update_tensorplex({"mine": float(number)})
    rig.until(reported)
    assert reported() == {"mine": 5.0}


SCRIPT = """
import sys
import numpy as np
from session import Config
from surreal_like import AgentMode, ExpSenderWrapper, TrainingTensorplexMonitor, to_float_tensor
from tests.surreal_like.agent.rig import Count, LineAgent

config = Config.load_file(sys.argv[1] + "/config.yaml")
config.session_config.folder = sys.argv[1]
session_config = config.session_config
env = ExpSenderWrapper(Count(), session_config=session_config)
env = TrainingTensorplexMonitor(
    env, agent_id=1, session_config=session_config, separate_plots=True
)
agent = LineAgent(
    learner_config=config.learner_config,
    env_config=config.env_config,
    session_config=session_config,
    agent_id=1,
    agent_mode=AgentMode.training,
)
obs, info = env.reset()
while agent.version < 2:
    action = agent.act(to_float_tensor(obs))
    obs, reward, terminated, truncated, info = env.step(action)
    if terminated or truncated:
        obs, info = env.reset()
        agent.fetch_parameter()
"""


@pytest.mark.slow
def test_A24_A25_A26_the_loop_of_a_script_runs(run_folder: Path) -> None:
    folder = RunFolder(run_folder)
    folder.create()
    with make_rig(run=folder, agent={"num": 2}) as rig:
        rig.start("ps", main.ps.build)
        learner, replay = LearnerPeer(rig), ReplayPeer(rig)
        rig.config.dump_file(folder.config)
        write_run_files(folder, rig.topology, rig.book)
        learner.publish()
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], cwd=ROOT)
        try:
            rig.until(lambda: len(replay.chunks) > 3 or process.poll() is not None, seconds=60.0)
            learner.publish()
            rig.until(lambda: process.poll() is not None, seconds=60.0)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0
        rig.until(lambda: replay.goodbyes)
        assert {chunk.sender for chunk in replay.chunks} == {"agent-1"}
        versions = replay.column("version")
        assert set(np.unique(versions)) <= {0, 1, 2}
        assert 1 in versions
        assert replay.column("step_type")[:4, 0].tolist() == [0, 1, 1, 2]
        assert replay.column("extras/values").shape[1:] == (1, 3)
