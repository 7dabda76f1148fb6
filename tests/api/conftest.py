"""What the tests of promises share: one short run, and stages on which parts of one play."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session.config import Config
from surreal_like import train
from surreal_like.run.train import Run
from tests.api.planned import planned_script
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
        "session_config.tensorplex.update_schedule=0.05",
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
    with planned_script(config.copy(), tmp_path / "run") as planned:
        yield planned
