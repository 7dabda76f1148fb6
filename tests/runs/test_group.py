"""Runs whose updates several learners make together: one of them is killed, and the run goes on."""

import subprocess
from pathlib import Path

import pytest

from session.launchers.handle import open_run
from surreal_like.addons.chaos.faults import KILL, Faults
from surreal_like.addons.chaos.invariants import RunFiles, check
from tests.polling import until
from tests.runs.command import CARTPOLE, COMMAND, ROOT, Record, Train, balanced, wait_for

SOLVED = 475.0
KILLS = 5
TWO = "session_config.learner.num=2"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("launcher", ["local", pytest.param("tmux", marks=pytest.mark.tmux)])
@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn", "impala"])
def test_two_learners_solve_cartpole_though_either_is_killed(
    run_folder: Path, launcher: str, algorithm: str, record_property: Record
) -> None:
    words = (f"configs/cartpole_{algorithm}.yaml", "--on", launcher, "--folder", str(run_folder))
    stop = "session_config.stop={eval_return: 501, env_steps: 100000000, eval_episodes: 10}"
    often = "session_config.checkpoint.period=5"
    subprocess.run([*COMMAND, "launch", *words, TWO, stop, often], check=True, cwd=ROOT)
    with open_run(run_folder) as run:
        faults = Faults(run.folder, ())

        def wait(look: object) -> None:
            assert callable(look)
            until(look, seconds=200.0, what=lambda: run.status(), step=lambda: wait_for(0.05))

        def learns(more: int) -> None:
            reached = run.progress().get("iterations", 0) + more
            wait(lambda: run.progress().get("iterations", 0) > reached)

        try:
            for kill in range(KILLS):
                learns(20)
                wait(lambda k=kill: faults.strike(KILL, ("learner-1", "learner")[k % 2]))
                wait(faults.all_back)
            learns(20)
            wait(
                lambda: (
                    (run.progress().get("best_eval") or {"mean_return": 0})["mean_return"] >= SOLVED
                )
            )
        finally:
            run.stop(reason="solved")
            run.wait(120.0)
    result = dict(run.folder.read_result() or {})
    assert (result["status"], result["reason"]) == ("stopped", "solved"), result["reason"]
    broken = check(RunFiles(run.folder, faults.happened))
    assert not any(broken.values()), broken
    assert balanced(result)
    # The end of one rank is the end of both; only its own counts against the limit of restarts.
    parts = result["components"]
    assert parts["learner"]["restarts"] == KILLS
    assert parts["learner-1"]["restarts"] == KILLS
    times = {str(n): each.recovered_seconds for n, each in enumerate(faults.happened)}
    record_property("recovery_seconds", times)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_is_resumed_with_another_number_of_learners(run_folder: Path) -> None:
    steps = 0
    for part, ranks in enumerate((2, 1, 2), 1):
        stop = f"session_config.stop={{eval_return: null, iterations: {300 * part}}}"
        words = ["--resume"] if part > 1 else [CARTPOLE]
        number = f"session_config.learner.num={ranks}"
        with Train(run_folder, *words, number, stop) as train:
            assert train.wait(120) == 0, train.words
        result = train.result
        assert result["iteration"] == 300 * part
        assert result["env_steps"] > steps
        assert balanced(result)
        steps = result["env_steps"]
        assert ("learner-1" in result["components"]) == (ranks > 1)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("algorithm", ["impala", "ppo"])
def test_an_agent_that_waits_for_each_version_never_waits_for_ever(
    run_folder: Path, algorithm: str
) -> None:
    words = (
        str(ROOT / "configs" / f"cartpole_{algorithm}.yaml"),
        "session_config.agent.num=1",
        "learner_config.algo.synchronous=true",
        "env_config.num_envs=16",
        "learner_config.replay.batch_size=16",
        "session_config.sender.flush_iteration=16",
        "session_config.stop={eval_return: null, iterations: 300}",
    )
    with Train(run_folder, *words, TWO) as train:
        assert train.wait(240) == 0, train.words
    result = train.result
    assert result["iterations"] == 300
    assert result["experience"]["learned"] == 300 * 16 * 16
    assert balanced(result)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_policies_are_learned_by_two_learners(run_folder: Path) -> None:
    config = str(ROOT / "configs" / "multi_cartpole_mixed.yaml")
    with Train(run_folder, config, TWO) as train:
        assert train.wait(240) == 0, train.words
    result = train.result
    assert result["goal_met"]
    assert balanced(result, fewer_rows=False)
    assert result["components"]["learner-1"]["exit_code"] == 0
