"""Run by ``python -m pytest``: the environment keeps its contract, and a short run ends."""

from pathlib import Path

from surreal_like import check_env, train

HERE = Path(__file__).parent
CORRIDOR = f"{HERE / 'environment.py'}:Corridor"


def test_the_environment_has_no_mistake() -> None:
    report = check_env({"env_name": CORRIDOR, "limit_episode_length": 50})
    assert report.ok, str(report)


def test_it_can_be_trained(tmp_path: Path) -> None:
    run = train(
        HERE / "experiment.yaml",
        launcher="serial",
        env=CORRIDOR,
        folder=tmp_path / "run",
        overrides={"session_config.stop": {"iterations": 3}},
    )
    assert run.result["reason"] == "budget of 3 iterations used"
