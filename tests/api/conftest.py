"""What the rows of the checklist share: one short run, and stages on which parts of one play."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import main.ps
from session.config import Config
from session.folder import RunFolder
from surreal_like import train
from surreal_like.planning import Plan, write_plan
from surreal_like.run import Run
from surreal_like.script import leave, run_in_background
from surreal_like.topology import make_topology
from tests.api.stage import Stage, experiment

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the shipped example in one thread, over after some updates."""
    overrides = [
        "session_config.stop={iterations: 60, eval_episodes: 4}",
        "session_config.agent.num=1",
        "env_config.num_envs=4",
        "learner_config.replay.min_size=200",
        "session_config.tensorplex.update_schedule={agent: 0.05, eval: 0.05}",
    ]
    folder = tmp_path_factory.mktemp("api") / "run"
    return train(
        ROOT / "configs" / "cartpole_dqn.yaml",
        overrides=overrides,
        launcher="serial",
        folder=folder,
    )


@pytest.fixture(scope="session")
def config() -> Config:
    """A resolved experiment; who changes it takes a copy."""
    return experiment()


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[Callable[[Config], Stage]]:
    """Makes stages and closes them."""
    made: list[Stage] = []

    def make(config: Config) -> Stage:
        made.append(Stage(config.copy(), tmp_path / f"stage-{len(made)}"))
        return made[-1]

    yield make
    for stage in made:
        stage.close()


@pytest.fixture
def stage(make_stage: Callable[[Config], Stage], config: Config) -> Stage:
    """An empty stage."""
    return make_stage(config)


@pytest.fixture
def script(tmp_path: Path, config: Config) -> Iterator[Config]:
    """The config of a planned run whose parameter server waits; this process is a script of it."""
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    plan = Plan(config.copy(), make_topology(config))
    write_plan(plan, tmp_path / "run")
    run_in_background(plan.config.session_config, "ps", 0, main.ps.build)
    yield plan.config
    end_script(plan.config)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def end_script(config: Config) -> None:
    """Leaves a planned run."""
    # Nobody waits for anybody any more.
    RunFolder(config.session_config.folder).result.write_text('{"status": "stopped"}')
    leave()
